# frozen_string_literal: true

require_relative "helper"

# The public names, in the order of the reference (docs/site/ruby.md). A new name is a promise: CONTRIBUTING.md.
class TestPublicSurface < ReactorTest
  FUNCTIONS = %i[run group deadline remaining shield offload backend backends dump dump_on observe fiber_name fiber_name=].freeze

  CONSTANTS = %i[
    Scheduler Lifecycle Offload Watching Watcher Inspection FiberStatus LockHolder Stall Histogram Processes IOSelect AddressResolution
    Group Cancelled Deadline DeadlineExceeded Semaphore RateLimit Server Rack Health Testing SnapshotServer SocketPlace NativeScheduler
    VERSION
  ].freeze

  # A fresh process, because the tests make internal constants public.
  def shown(code) = run_child("require 'reactor/testing'; require 'reactor/observe/snapshot_server'; require 'reactor/rack'; puts(#{code})").out.split.map(&:to_sym)

  def test_functions
    assert_equal FUNCTIONS.sort, shown("Reactor.singleton_methods").sort
  end

  def test_constants
    assert_equal CONSTANTS.sort, shown("Reactor.constants").sort
  end
end
