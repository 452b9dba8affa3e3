# frozen_string_literal: true

module Bench
  # What this process has used, as a difference between two moments.
  module Usage
    # struct rusage of every 64-bit Unix: two timevals, twelve longs, then the voluntary context switches.
    VOLUNTARY = (2 * 16) + (12 * 8)
    begin
      require "fiddle"
      GETRUSAGE = Fiddle::Function.new(Fiddle::Handle::DEFAULT["getrusage"], [Fiddle::TYPE_INT, Fiddle::TYPE_VOIDP], Fiddle::TYPE_INT)
    rescue LoadError, Fiddle::DLError
      GETRUSAGE = nil
    end

    module_function

    # @return [Array] of what {since} subtracts
    def now
      [clock(Process::CLOCK_MONOTONIC), cpu, switches, GC.total_time / 1e9]
    end

    # @return [Hash] seconds, CPU seconds, voluntary switches, seconds in GC
    def since(before)
      names = %i[seconds cpu switches gc]
      names.zip(now.zip(before).map { |after, earlier| after && (after - earlier) }).to_h
    end

    def clock(which) = Process.clock_gettime(which)

    def cpu = clock(Process::CLOCK_PROCESS_CPUTIME_ID)

    # Voluntary context switches of all threads, those that have ended included; nil where the system does not tell.
    def switches
      return unless GETRUSAGE

      room = "\0".b * 256
      GETRUSAGE.call(0, room).zero? ? room.unpack1("q", offset: VOLUNTARY) : nil
    end
  end
end
