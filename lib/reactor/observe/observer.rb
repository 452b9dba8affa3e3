# frozen_string_literal: true

require "json"
require "socket"
require_relative "socket_place"

module Reactor
  # Answers `reactor-top`: a thread that accepts connections on a UNIX socket, and writes to each what all schedulers of the
  # Ractor look like now, as JSON. It does not use a scheduler, so it answers also while a loop is busy.
  class Observer
    # Fibers that are listed, the one that has waited longest first. All of them are counted.
    FIBERS = 16
    # Seconds that a reader may take to take a part of the answer, and seconds after an error until the next one is accepted.
    PATIENCE = 1
    private_constant :PATIENCE

    class << self
      # @return [Observer] of this process; the same one until it is closed
      # @api private
      def start
        return @current if @current&.open?

        @current&.close
        @current = new
      end

      # @return [Hash{Symbol => Object}] what all schedulers look like now
      # @api private
      def snapshot
        schedulers = Schedulers.list.select { |scheduler| scheduler.respond_to?(:health) && !scheduler.closed? }
        { reactor: VERSION, ruby: RUBY_VERSION, pid: Process.pid, program: text($PROGRAM_NAME),
          schedulers: schedulers.map { |scheduler| row(scheduler) } }
      end

      private

      # A look makes few objects, because each collection that they cause marks the stacks of all fibers.
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

    # @return [String] of the socket
    attr_reader :path

    # @raise [NotImplementedError] on Windows, where Ruby has no UNIX sockets
    # @raise [SocketPlace::Untrusted, SystemCallError] there is no place for the socket
    # @api private
    def initialize
      raise NotImplementedError, "observing a process needs UNIX sockets, which Ruby lacks on Windows" if VM::WINDOWS

      @pid = Process.pid
      @path = SocketPlace.path(@pid)
      File.unlink(@path) if File.socket?(@path) # of an earlier process with this number
      @server = UNIXServer.new(@path)
      @thread = Thread.new { serve }
      at_exit { close }
      @thread.name = "reactor observer"
    end

    # @return [Boolean] whether it answers in this process
    def open? = Process.pid == @pid && !@server.closed? && @thread.alive?

    # Ends it, and removes the socket. In a forked child it only closes the child's copy.
    #
    # @return [nil]
    def close
      return if @server.closed?

      if Process.pid == @pid
        Fiber.blocking { @thread.kill.join } unless @thread.equal?(Thread.current) # a fiber that waits for a bystander looks deadlocked
        File.unlink(@path) if File.socket?(@path)
      end
      @server.close
      nil
    end

    private

    def serve
      Thread.current.thread_variable_set(:reactor_bystander, true) # it wakes no fiber
      VM.replace_storage(nil) # that of the fiber which happened to start it
      serve_one until @server.closed?
    end

    # An error of accept(2) concerns one connection, or passes: descriptors or memory may be exhausted.
    def serve_one
      answer(@server.accept)
    rescue StandardError, NoMemoryError
      sleep PATIENCE
    end

    def answer(client)
      client.timeout = PATIENCE
      before = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      text = JSON.generate(Observer.snapshot)
      spent = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - before
      client.write("#{text.chop},\"snapshot_seconds\":#{spent}}\n")
    rescue IO::TimeoutError, SystemCallError
      nil # the reader has left, or does not read
    rescue StandardError => error
      client.write("#{JSON.generate({ error: "#{error.class}: #{error.message}".scrub })}\n")
    ensure
      client.close
    end
  end
end
