# frozen_string_literal: true

require "monitor"

module Fuzz
  # Reactor.group on threads, as far as programs use it: what a group is compared with.
  class Group
    # Ends the block at a call of the group, if the group has failed.
    Ended = Class.new(Exception) # rubocop:disable Lint/InheritException -- no rescue in the block may catch it

    Member = Struct.new(:group, :thread, :state, :value, :error)

    def initialize(stage, limit: nil, timeout: nil)
      @stage = stage
      @limit = limit
      @end = timeout && Fuzz.now + timeout
      @owner = Thread.current
      @change = (@lock = Monitor.new).new_cond
      @members = []
      @ended = []
      @errors = []
    end

    def run
      begin
        value = yield(self).tap { wait }
      rescue Ended
        late = true
      rescue Exception => error # rubocop:disable Lint/RescueException -- raised below
        @errors << error
      ensure
        @owner = nil
        cancel
        wait
      end
      raise @errors.first || Timeout::Error if late || @errors.any?

      value
    end

    # Returns when the task sleeps, or has ended.
    def async(&block)
      until_true { @errors.empty? && (@limit.nil? || size < @limit) }
      member = Member.new(self, nil, :running)
      @lock.synchronize { @members << member }
      member.thread = Thread.new { Thread.handle_interrupt(Object => :never) { perform(member, &block) } }
      sleep Stage::POLL until member.state != :running || @stage.asleep?(member.thread, nil)
      member
    end

    def wait = until_true { size.zero? }.then { self }

    def results = @members.map { |member| value(member) }

    def map(items) = items.map { |item| async { yield item } }.map { |member| value(member) }

    def first
      loop do
        member = until_true { @ended.shift || (size.zero? && :none) }
        return if member == :none
        next unless member.state == :completed && (!block_given? || yield(member.value))

        cancel
        return member.value
      end
    end

    def cancel
      @lock.synchronize { running.each { |member| member.thread&.kill } }
      self
    end

    def size = running.size

    private

    def running = @members.select { |member| member.state == :running }

    def value(member)
      until_true { member.state != :running }
      member.value
    end

    def perform(member)
      state = :cancelled
      Thread.handle_interrupt(Object => :immediate) do
        member.value = yield
        state = :completed
      end
    rescue Exception => error # rubocop:disable Lint/RescueException -- the group raises it
      state = :failed
    ensure
      @lock.synchronize do
        @errors << error if error
        member.state = state
        @ended << member
        @change.broadcast
      end
    end

    # @return what the block returns, as soon as that is true
    def until_true
      @lock.synchronize do
        until (found = yield)
          raise Ended if @owner.equal?(Thread.current) && (@errors.any? || (@end && Fuzz.now >= @end))

          @change.wait(0.01)
        end
        found
      end
    end
  end
end
