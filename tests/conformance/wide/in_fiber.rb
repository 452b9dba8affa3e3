# frozen_string_literal: true

# Runs a block in a fiber of a new scheduler on this thread. The backend "reference" is the scheduler of CRuby's own tests:
# a difference that it shows as well is not ours.
module InFiber
  BACKEND = ENV.fetch("WIDE_BACKEND")
  REFERENCE = "reference"

  if BACKEND == REFERENCE
    require File.expand_path("../reference_scheduler", ENV.fetch("WIDE_SOURCE"))
  else
    $LOAD_PATH.unshift(ENV.fetch("REACTOR_LIB"))
    require "reactor"
  end

  # @return the block's value; its exception is raised here
  def self.run
    value = error = nil
    over = false
    Fiber.set_scheduler(scheduler)
    begin
      Fiber.schedule do
        value = yield
        over = true
      rescue Exception => error # rubocop:disable Lint/RescueException -- SystemExit and Interrupt as well
        over = true
      end
    ensure
      Fiber.set_scheduler(nil) # runs the fibers to their end
    end
    raise error if error
    raise "the fiber of the test did not reach its end" unless over

    value
  end

  def self.scheduler = BACKEND == REFERENCE ? IOBufferScheduler.new : Reactor::Scheduler.new(backend: BACKEND.to_sym)
end
