# frozen_string_literal: true

require "json"
require "socket"
require_relative "socket_place"

module Reactor
  # Serves `reactor-top`: a thread accepts connections on a UNIX socket, and writes a snapshot of all schedulers of the Ractor to
  # each, as JSON. The thread uses no scheduler, so it answers even while a loop is busy.
  class SnapshotServer
    # The most fibers listed, longest-waiting first. All fibers are counted.
    FIBERS = 16
    # Seconds that a reader may take to accept part of the answer, and seconds to pause after an error.
    PATIENCE = 1
    private_constant :PATIENCE

    class << self
      # @return [SnapshotServer] this process's: the same object until it is closed
      # @api private
      def start
        return @current if @current&.open?

        @current&.close
        @current = new
      end

      # @return [Hash{Symbol => Object}] the current state of all schedulers
      # @api private
      def snapshot
        schedulers = Schedulers.list.select { |scheduler| scheduler.respond_to?(:health) && !scheduler.closed? }
        { reactor: VERSION, ruby: RUBY_VERSION, pid: Process.pid, program: text($PROGRAM_NAME),
          schedulers: schedulers.map { |scheduler| row(scheduler) } }
      end

      private

      # A snapshot allocates few objects, because each garbage collection it causes marks the stacks of all fibers.
      def row(scheduler)
        health = scheduler.health
        { id: scheduler.object_id, class: text(scheduler.class.name), backend: scheduler.backend.name, stats: health.stats,
          turns: histogram(health.turns), lateness: histogram(health.lateness), queue: histogram(health.queue),
          fibers: longest_waits(scheduler), stalls: scheduler.slowest_stalls.map { |stall| stall_row(stall) } }
      end

      def histogram(times) = { counts: times.counts, sum: times.sum, max: times.max }

      def longest_waits(scheduler)
        FiberStatus.rows(scheduler, FIBERS).filter_map do |row|
          next unless row.fiber.alive?

          { name: text(FiberName.of(row.fiber)), state: row.state.name, hook: row.hook&.name, events: FiberStatus.wanted(row.events),
            seconds: row.seconds, place: text(FiberStatus.place(row.fiber, is_running: row.state == :running)) }
        end
      end

      def stall_row(stall)
        { name: text(FiberName.of(stall.fiber)), seconds: stall.seconds, backtrace: stall.backtrace.first(12).map { |line| text(line) } }
      end

      def text(string) = string && FiberStatus.text(string)
    end

    # @return [String] path of the socket
    attr_reader :path

    # @raise [NotImplementedError] on Windows, where Ruby has no UNIX sockets
    # @raise [SocketPlace::Untrusted, SystemCallError] the socket cannot be made
    # @api private
    def initialize
      raise NotImplementedError, "observing a process needs UNIX sockets, which Ruby lacks on Windows" if VM::WINDOWS

      @pid = Process.pid
      @path = SocketPlace.path(@pid)
      File.unlink(@path) if File.socket?(@path) # left by an earlier process with the same PID
      @server = UNIXServer.new(@path)
      @thread = Thread.new { serve }
      at_exit { close }
      @thread.name = "reactor snapshots"
    end

    # @return [Boolean] whether it is serving in this process
    def open? = Process.pid == @pid && !@server.closed? && @thread.alive?

    # Stops it and removes the socket. In a forked child, only closes the child's copy of the socket.
    #
    # @return [nil]
    def close
      return if @server.closed?

      if Process.pid == @pid
        # Blocks: a fiber that waits for this thread, a bystander, would look deadlocked.
        Fiber.blocking { @thread.kill.join } unless @thread.equal?(Thread.current)
        File.unlink(@path) if File.socket?(@path)
      end
      @server.close
      nil
    end

    private

    def serve
      Thread.current.thread_variable_set(:reactor_bystander, true) # this thread wakes no fiber
      VM.replace_storage(nil) # drops the storage of the fiber that happened to start this thread
      serve_one until @server.closed?
    end

    # Errors of accept(2) concern one connection or are temporary, such as a lack of descriptors or memory.
    def serve_one
      answer(@server.accept)
    rescue StandardError, NoMemoryError
      sleep PATIENCE
    end

    def answer(client)
      client.timeout = PATIENCE
      before = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      text = JSON.generate(SnapshotServer.snapshot)
      spent = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - before
      client.write("#{text.chop},\"snapshot_seconds\":#{spent}}\n")
    rescue IO::TimeoutError, SystemCallError
      nil # the reader has left or is not reading
    rescue StandardError => error
      client.write("#{JSON.generate({ error: "#{error.class}: #{error.message}".scrub })}\n")
    ensure
      client.close
    end
  end
end
