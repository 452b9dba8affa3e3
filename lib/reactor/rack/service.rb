# frozen_string_literal: true

require_relative "listeners"

module Reactor
  class Rack
    # Serves a {Rack} in this process, or in workers that it forks, until a signal ends it. See {Rack#run}.
    class Service
      # How a run ends: whatever the application's fibers still do is cancelled.
      Over = Class.new(StandardError)
      # Seconds that a new worker may take to begin.
      START = 60
      # Seconds between the start of a worker that ends at once, and the next one in its place.
      PAUSE = 1
      # Seconds that a worker may take to end beside its time for answers.
      MARGIN = 2
      private_constant :Over, :START, :PAUSE, :MARGIN

      # @api private
      def initialize(rack, host, port, workers, stop_timeout, backend, logger)
        raise ArgumentError, "workers must be 0 or more" if workers.negative?
        raise NotImplementedError, "workers need fork(2), which this platform lacks" if workers.positive? && !Process.respond_to?(:fork)

        @rack = rack
        @stop_timeout = Options.seconds(:stop_timeout, stop_timeout)
        @backend = backend
        @logger = logger
        @listeners = Listeners.new(host, port, [workers, 1].max)
        @workers = workers
        @events = Thread::Queue.new # signals; ends of workers
      end

      # @return [String] where it serves, as a URL
      def url = @listeners.url(@rack.tls?)

      # Ends the service, as TERM does. Any thread and any trap handler may call it.
      #
      # @return [nil]
      def stop
        @events << :stop
        nil
      end

      # @yieldparam service [Service] when its listener is open and signals end it
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

      # Serves in this process until something comes from the first queue. What comes from the second one then hastens the end.
      #
      # @yield when it accepts connections
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
          raise Over
        end
      rescue Over
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

      # A signal has come. A worker that has not set its own handlers yet has this one.
      def note(event)
        @is_to_stop = true if event == :stop
        @events << event
      end

      # --- workers -------------------------------------------------------------------------------------------------

      def supervise
        @current = Array.new(@workers) # by their place: the process that serves
        @running = {} # pid => when it began
        @orphaned, @alive = IO.pipe # its end tells workers that this process has ended
        @workers.times { |place| @current[place] = start(place) }
        handle(@events.pop) until @stopping
        end_workers
      ensure
        [@orphaned, @alive].each { |io| io&.close }
      end

      # Asks a worker to end. One that computes, or is stopped, does not, so it is killed when its time is over. (By a thread: a push in a
      # trap handler does not end a Queue#pop with a limit.)
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

      # @param begun [IO, nil] where the worker tells that it serves
      # @return [Integer] its pid
      def start(place, begun = nil)
        pid = Process.fork { work(place, begun) }
        @running[pid] = Clock.now
        Thread.new { @events << [pid, Process.wait2(pid).last] }
        pid
      end

      # What a worker does. A signal may reach all processes, and its parent sends TERM besides, so any number of them ends a worker as one
      # does. The end of the pipe from its parent ends it as well, or hastens its end.
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

      # Starts another worker in a place, and ends the one that it replaces. Both use the same listeners, so that none is closed with
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
          @logger.error("worker #{pid} has not begun to serve; #{earlier} goes on")
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

      # Their own listeners are closed here first, so that the kernel refuses connections as soon as the workers have closed theirs.
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
        nil # its end is in the queue
      end
    end
  end
end
