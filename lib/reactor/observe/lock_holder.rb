# frozen_string_literal: true

require_relative "../semaphore"

module Reactor
  LockHolder = Data.define(:status, :what, :place)

  # A fiber that waits while holding a lock, a permit or a connection that others may be waiting for. See {Inspection#holders}.
  #
  # @!attribute [r] status
  #   @return [FiberStatus] the fiber, what it waits for, since when, and where
  # @!attribute [r] what
  #   @return [String] "Mutex", "Monitor", "permit of #<Reactor::Semaphore …>", "connection of a ConnectionPool", or "connection of the
  #     pool primary"; "Mutex or Monitor" up to Ruby 3.3
  # @!attribute [r] place
  #   @return [String] the backtrace line that entered `synchronize`, `acquire`, ConnectionPool's `with`, or Active Record's
  #     `with_connection` or `transaction`; for a connection obtained in another way, the line where the fiber waits; if the fiber
  #     holds permits of several semaphores, all lines that took one, joined by " or "
  class LockHolder
    # A C method's frame has its caller's.
    PLACE = /.*?:\d+:/
    ACQUIRE = %w['Reactor::Semaphore#acquire' 'Reactor::Semaphore#try_acquire' `acquire' `try_acquire'].freeze
    private_constant :PLACE, :ACQUIRE

    class << self
      # @param statuses [Array<FiberStatus>]
      # @return [Array<LockHolder>]
      # @api private
      def of(statuses)
        owned = connections.group_by(&:owner)
        waiting = statuses.select { |status| status.hook || (status.state == :away && status.seconds) }
        semaphores = FiberStatus.objects(Semaphore, waiting.map(&:fiber))
        held = semaphores.flat_map { |semaphore| semaphore.holders.map { |fiber| [fiber, semaphore] } }.group_by(&:first)
        waiting.flat_map do |status|
          owned_by = owned.fetch(status.fiber, []).map { |connection| [title(connection), checkout(status.backtrace)] }
          permits = held.key?(status.fiber) ? permits(held[status.fiber].map(&:last), acquired(status.fiber)) : []
          found = locks(status.backtrace) + permits + pooled(status.backtrace) + owned_by
          found.filter_map { |what, place| new(status, what, place) if place } # another thread may ask when the fiber has gone on
        end
      end

      private

      # The locks the fiber holds by `synchronize`, and the lines that entered it, innermost first.
      def locks(backtrace)
        places, labels = backtrace.map { |frame| frame.rpartition(":in ").values_at(0, 2) }.transpose
        return [] unless places

        entered = labels.each_index.select { |index| VM::LOCKS.key?(labels[index]) && places[index] == places[index + 1] }
        entered.shift if entered.any? && gives_up_lock?(places, labels, entered.first)
        entered.map { |index| [VM::LOCKS[labels[index]], backtrace.drop(index + 1).find { |frame| !frame.end_with?("mon_synchronize'") }] }
      end

      # Whether the fiber waits for the innermost lock itself, or has released that lock and waits for a condition.
      def gives_up_lock?(places, labels, lock)
        first = labels[0].end_with?("kernel_sleep'", "`block'", "#block'") ? 1 : 0 # skips a native hook
        lock == first || VM::UNLOCKERS.include?(labels[first]) ||
          (labels[first, 2] == VM::UNLOCKERS_WITHOUT_CLASS && places[first, 3].uniq.one?)
      end

      # The permits, and the lines that took them, innermost first. The innermost line may still wait for one. Which of several
      # semaphores' permits a line has taken is not known.
      def permits(semaphores, lines)
        lines = lines.last(semaphores.size)
        lines.fill(lines.join(" or ")) if semaphores.uniq.size > 1
        semaphores.zip(lines).map { |semaphore, line| ["permit of #{Semaphore.instance_method(:inspect).bind_call(semaphore)}", line] }
      end

      # The lines that entered `acquire`, innermost first; none if the fiber has ended meanwhile.
      def acquired(fiber)
        (fiber.backtrace || []).each_cons(2).filter_map do |frame, caller|
          caller if frame.end_with?(*ACQUIRE) && frame[PLACE] == caller[PLACE]
        end
      end

      # The connection that the fiber has by `ConnectionPool#with`, unless it still waits for it.
      def pooled(backtrace)
        innermost = backtrace.index { |frame| frame.include?("/connection_pool") }
        return [] unless innermost && backtrace[innermost].end_with?("with'")

        [["connection of a ConnectionPool", backtrace.drop(innermost).find { |frame| !frame.include?("/connection_pool") }]]
      end

      # The connections of Active Record. The pool is read without its lock, because a trap handler could not take the lock.
      def connections
        return [] unless defined?(::ActiveRecord) && !::ActiveRecord.autoload?(:ConnectionAdapters)

        adapters = ::ActiveRecord::ConnectionAdapters
        adapters.autoload?(:AbstractAdapter) ? [] : ObjectSpace.each_object(adapters::AbstractAdapter).to_a
      end

      def title(connection) = "connection of the pool #{connection.pool.db_config.name}"

      def checkout(backtrace)
        outermost = backtrace.rindex { |frame| frame.end_with?("with_connection'", "transaction'") && frame.include?("/active_record/") }
        (outermost && backtrace.drop(outermost).find { |frame| !frame.include?("/active_record/") }) || backtrace.first
      end
    end

    # @return [String] one line
    def to_s = "#{FiberName.describe(status.fiber)} holds a #{what} since #{place}, #{status.summary}"
  end
end
