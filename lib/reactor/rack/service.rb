# frozen_string_literal: true

require_relative "listeners"

module Reactor
  class Rack
    # Serves a {Rack} in this process or in forked workers, until a signal ends it. See {Rack#run}.
    class Service
      # Ends a run by cancelling the application's remaining fibers.
      Ended = Class.new(StandardError)
      # Seconds that a new worker may take to start serving.
      START = 60
      # Seconds to wait before replacing a worker that has ended right after its start.
      PAUSE = 1
      # Seconds that a worker may take to exit, besides its time for completing responses.
      MARGIN = 2
      private_constant :Ended, :START, :PAUSE, :MARGIN

      # @api private
      def initialize(rack, host, port, workers, stop_timeout, backend, logger)
        raise ArgumentError, "workers must be 0 or more" if workers.negative?
        raise NotImplementedError, "workers need fork(2), which this platform lacks" if workers.positive? && !Process.respond_to?(:fork)

        @rack = rack
        @stop_timeout = Options.seconds(:stop_timeout, stop_timeout)
        @backend = Internal.choose(backend) # raises before anything listens or is forked
        @logger = logger
        @listeners = Listeners.new(host, port, [workers, 1].max)
        @workers = workers
        @events = Thread::Queue.new # signals, and exits of workers
      end

      # @return [String] the URL it serves
      def url = @listeners.url(@rack.tls?)

      # Stops the service, like TERM. Any thread and any trap handler may call this.
      #
      # @return [nil]
      def stop
        @events << :stop
        nil
      end

      # @yieldparam service [Service] once it is listening and handles signals
      # @api private
      def run
        raise "this thread already has a scheduler: use serve" if Fiber.scheduler

        owner = Process.pid
        on_signals do
          yield self if block_given?
          @workers.zero? ? serve(@listeners.of(0), @events, @events) : supervise
        end
      ensure
        @listeners.close if owner == Process.pid
      end

      private

      # Serves in this process until something is pushed to the first queue. A push to the second queue hastens the end.
      #
      # @yield once it accepts connections
      def serve(listeners, stop, hasten)
        Reactor.run(backend: @backend, on_error: ->(error, _) { @rack.report(error, nil) }) do
          servers = listeners.map { |listener| @rack.serve(listener) }
          yield if block_given?
          stop.pop
          Fiber.schedule do
            hasten.pop
            servers.each { |server| server.stop(0) }
          end
          Reactor.group { |group| servers.each { |server| group.async { server.stop(@stop_timeout) } } }
          raise Ended
        end
      rescue Ended
        nil
      end

      def on_signals
        signals = { "INT" => :stop, "TERM" => :stop }
        signals.update("HUP" => :replace, "USR1" => :replace) unless @workers.zero?
        earlier = signals.select { |signal,| Signal.list.key?(signal) }.to_h { |signal, event| [signal, trap(signal) { note(event) }] }
        yield
      ensure
        earlier&.each { |signal, handler| trap(signal, handler || "DEFAULT") }
      end

      # Handles a signal. A worker inherits this handler until it sets its own.
      def note(event)
        @is_to_stop = true if event == :stop
        @events << event
      end

      # --- workers -------------------------------------------------------------------------------------------------

      def supervise
        @current = Array.new(@workers) # the serving process of each place
        @running = {} # pid => when it started
        @orphaned, @alive = IO.pipe # the end of file tells workers that this process has ended
        @workers.times { |place| @current[place] = start(place) }
        handle(@events.pop) until @stopping
        end_workers
      ensure
        [@orphaned, @alive].each { |io| io&.close }
      end

      # Tells a worker to end. If the worker does not end, because it computes or is stopped, a separate thread kills it when its
      # time is up. (The main thread cannot wait with a timeout, because a push in a trap handler does not end a Queue#pop with a
      # timeout.)
      def end_worker(pid, seconds)
        kill(:TERM, pid)
        return unless seconds

        Thread.new do
          sleep(seconds + MARGIN)
          kill(:KILL, pid)
        end
      end

      def handle(event)
        case event
        when :stop then @stopping = true
        when :replace then @workers.times { |place| replace(place) }
        else ended(*event)
        end
      end

      # @param begun [IO, nil] the worker's pipe for reporting that it serves
      # @return [Integer] PID
      def start(place, begun = nil)
        pid = Process.fork { work(place, begun) }
        @running[pid] = Clock.now
        Thread.new { @events << [pid, Process.wait2(pid).last] }
        pid
      end

      # The main program of a worker. A signal may reach all processes of the group, and the parent sends TERM as well, so
      # repeated signals have the effect of one. The end of the parent's pipe ends the worker too, or hastens its end.
      def work(place, begun)
        %w[INT HUP USR1].each { |signal| trap(signal, "IGNORE") }
        stop = Thread::Queue.new
        hasten = Thread::Queue.new
        trap("TERM") { stop << true }
        stop << true if @is_to_stop
        @alive.close
        @listeners.keep(place)
        serve(@listeners.of(place), stop, hasten) do
          begun&.write(".")
          begun&.close
          Fiber.schedule do
            @orphaned.read
            (stop.num_waiting.zero? ? hasten : stop) << true
          end
        end
      end

      # Starts a new worker in a place, and ends the one it replaces. Both use the same listeners, so none is closed with
      # connections in its queue.
      def replace(place)
        earlier = @current[place]
        begins, begun = IO.pipe
        pid = start(place, begun)
        begun.close
        if begins.wait_readable(START) && begins.read(1)
          @current[place] = pid
          end_worker(earlier, @stop_timeout)
        else
          @logger.error("worker #{pid} has not started serving; #{earlier} keeps running")
          kill(:KILL, pid)
        end
      ensure
        begins&.close
      end

      def ended(pid, status)
        began = @running.delete(pid)
        place = @current.index(pid) or return
        @logger.error("worker #{pid} ended (#{status}) and is replaced")
        sleep PAUSE if Clock.now - began < PAUSE
        @current[place] = start(place)
      end

      # Closes the parent's listeners first, so the kernel refuses connections once the workers have closed theirs.
      def end_workers
        @listeners.close
        @running.each_key { |pid| end_worker(pid, @stop_timeout) }
        until @running.empty?
          event = @events.pop
          hasten if event == :stop
          @running.delete(event.first) if Array === event
        end
      end

      def hasten
        @alive.close
        @running.each_key { |pid| end_worker(pid, 0) }
      end

      def kill(signal, pid)
        Process.kill(signal, pid) if @running.key?(pid)
      rescue Errno::ESRCH
        nil # its exit has been queued
      end
    end
  end
end
