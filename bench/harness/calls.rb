# frozen_string_literal: true

module Bench
  # System calls per operation, by name. The calls of two runs of different length are counted. The difference is what the
  # operations cost, without start, warm-up of the VM and end.
  #
  # They are counted by perf(1) if it may use tracepoints, which costs a run next to nothing; else by strace(1). Under strace a
  # call takes ten times as long, so what goes by the clock (polls, batches of a turn) happens after fewer operations.
  module Calls
    FACTOR = 3
    MIN_NAMED = 0.005 # calls per operation; a call that is made less often is not named

    # The calls that perf counts by name. Each costs a run 40 ms, so all other calls are one number.
    NAMES = %w[
      accept4 clone3 close connect epoll_ctl epoll_pwait2 epoll_wait fcntl futex getpeername getsockname getsockopt io_uring_enter ioctl
      madvise mmap mprotect munmap openat poll ppoll preadv2 read readv recvfrom recvmsg sendmsg sendto setsockopt socket write writev
    ].freeze
    ALL = "raw_syscalls:sys_enter"

    # Counts by tracepoints.
    module Perf
      module_function

      # Fails where there is no perf, no permission, or one of these calls is none of the architecture's.
      def wrapper(path) = ["perf", "stat", "-x,", "-e", [ALL, *NAMES.map { |name| "syscalls:sys_enter_#{name}" }].join(","), "-o", path]

      def parse(text)
        counts = text.lines.filter_map do |line|
          count, _, event = line.split(",")
          [event.delete_prefix("syscalls:sys_enter_"), Integer(count)] if count&.match?(/\A\d+\z/)
        end.to_h
        all = counts.delete(ALL)
        counts.merge("remaining" => all - counts.values.sum)
      end
    end

    # Counts by stopping at each call.
    module Strace
      module_function

      def wrapper(path) = ["strace", "-c", "-f", "-qq", "-o", path]

      def parse(text)
        text.lines.filter_map do |line|
          fields = line.split
          [fields.last, Integer(fields[3])] if fields.first&.match?(/\A\d+\.\d+\z/) && fields.last != "total"
        end.to_h
      end
    end

    module_function

    def available? = !counter.nil?

    # What counts here, if there is anything that can.
    def counter
      @counter ||= [Perf, Strace].find { |counter| system(*counter.wrapper(File::NULL), "true", out: File::NULL, err: File::NULL) }
    end

    # @yieldparam wrapper [Array<String>] what to put before the command of a run
    # @yieldparam operations [Integer]
    # @yieldreturn [Hash, Session::Failure]
    # @return [Hash, Session::Failure] :calls per operation, :names with calls per operation each, :control: the epoll_ctl
    #   calls of both runs, :runs: their operations
    def count(operations)
      counts = [operations, operations * FACTOR].to_h do |size|
        Tempfile.create("calls") do |file|
          result = yield counter.wrapper(file.path), size
          return result if result.is_a?(Session::Failure)

          [result[:operations] || size, counter.parse(file.read)]
        end
      end
      difference(counts.values, counts.keys)
    end

    # Each run has made its warm-up too, which is a tenth: both grow alike.
    def difference(counts, runs)
      more = (runs.last - runs.first) * (1 + (1.0 / Run::WARM_UP))
      names = counts.last.to_h { |name, calls| [name, ((calls - counts.first.fetch(name, 0)) / more).round(4)] }
      often = names.select { |_, calls| calls >= MIN_NAMED }.sort_by { |_, calls| -calls }.to_h
      { calls: names.values.sum, names: often, runs: runs, control: counts.map { |calls| calls.fetch("epoll_ctl", 0) } }
    end
  end
end
