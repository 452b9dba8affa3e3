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
      # Workers in a row that may end before they serve.
      FAILED_STARTS = 5
      # Seconds that a worker may take to exit, besides its time for completing responses.
      MARGIN = 2
      private_constant :Ended, :START, :PAUSE, :FAILED_STARTS, :MARGIN

      # @api private
      def initialize(rack, logger, host:, port:, workers:, stop_timeout:, backend:, scheduler:, reuse_port:, backlog:, socket_mode:, worker_timeout:,
                     before_fork:, after_fork:)
        workers = Checks.count(:workers, Integer(workers), 0)
        raise NotImplementedError, "workers need fork(2), which this platform lacks" if workers.positive? && !Process.respond_to?(:fork)

        raise NotImplementedError, "this platform has no SO_REUSEPORT" if reuse_port && !Socket.const_defined?(:SO_REUSEPORT)

        @rack = rack
        @stop_timeout = Checks.seconds(:stop_timeout, stop_timeout)
        @scheduler = { **scheduler, backend: Internal.choose(backend) }
        other = scheduler.keys.find { |name| %i[backend on_error].include?(name) }
        raise ArgumentError, "scheduler has no #{other} here: it is a keyword of its own" if other

        Scheduler.new(**@scheduler).close # raises before anything listens or is forked
        @logger = logger
        @worker_timeout = Checks.seconds(:worker_timeout, worker_timeout)
        hosts = Array(host).map { |one| String(one) }
        raise ArgumentError, "no host given" if hosts.empty? || hosts.any?(&:empty?)
        raise ArgumentError, "socket_mode must be between 0 and 0777" unless socket_mode.nil? || (0..0o777).cover?(Integer(socket_mode))

        @before_fork, @after_fork = { before_fork: before_fork, after_fork: after_fork }.map do |name, hook|
          hook.nil? || hook.respond_to?(:call) ? hook : raise(TypeError, "#{name} must respond to call")
        end

        raise ArgumentError, "port must be between 0 and 65535, not #{port.inspect}" unless (0..65_535).cover?(number = Integer(port, exception: false))

        @listeners = Listeners.new(hosts, number, reuse_port ? [workers, 1].max : 1, Checks.count(:backlog, backlog), socket_mode)
        @workers = workers
        @events = Thread::Queue.new # signals, and exits of workers
        @noted, @note = IO.pipe if workers.positive? # a byte for each
      end

      # @return [Symbol] the backend it uses
      def backend = @scheduler[:backend]

      # @return [Limits]
      def limits = @rack.limits

      # @return [String] the URL it serves
      def url = @listeners.url(@rack.tls?)

      # Stops the service, like TERM. Any thread and any trap handler may call this.
      #
      # @return [nil]
      def stop = note(:stop) && nil

      # @yieldparam service [Service] once it is listening and handles signals
      # @api private
      def run
        raise "this thread already has a scheduler: use serve" if Fiber.scheduler

        owner = Process.pid
        allow_descriptors
        on_signals do
          yield self if block_given?
          @workers.zero? ? serve(@listeners.of(0), @events, @events) { notify("READY=1") } : supervise
        end
      ensure
        @listeners.close if owner == Process.pid
      end

      private

      # Serves in this process until something is pushed to the first queue. A push to the second queue hastens the end.
      #
      # @yield once it accepts connections
      def serve(listeners, stop, hasten)
        Reactor.run(**@scheduler, on_error: ->(error, _) { @rack.report(error, nil) }) do
          servers = listeners.map { |listener| @rack.serve(listener) }
          yield if block_given?
          @rack.reopen_logs until stop.pop == :stop
          notify("STOPPING=1") if @workers.zero?
          @listeners.unlink
          Fiber.schedule do
            nil until hasten.pop == :stop
            servers.each { |server| server.stop(0) }
          end
          Reactor.group { |group| servers.each { |server| group.async { server.stop(@stop_timeout) } } }
          raise Ended
        end
      rescue Ended
        nil
      end

      # Tells systemd what the service does.
      def notify(state)
        path = ENV.fetch("NOTIFY_SOCKET", "")
        return if path.empty?

        Socket.open(:UNIX, :DGRAM) { |socket| socket.sendmsg_nonblock(state, 0, Addrinfo.unix(path.sub(/\A@/, "\0"))) }
      rescue SystemCallError, ArgumentError => error # its queue is full; its path is too long
        @logger.error("systemd has not been told #{state}: #{error.message}")
      end

      # Raises the soft limit of open files, of which connections may take three quarters ({Rack#serve}), as far as it may be raised.
      def allow_descriptors
        return unless Process.respond_to?(:getrlimit)

        soft, hard = Process.getrlimit(:NOFILE)
        Process.setrlimit(:NOFILE, [@rack.limits.connections * 2, hard].min, hard) if soft < [@rack.limits.connections * 2, hard].min
      end

      def on_signals
        hup, usr1 = @workers.zero? ? %i[stop reopen] : %i[replace replace]
        signals = { "INT" => :stop, "TERM" => :stop, "QUIT" => :stop, "HUP" => hup, "USR1" => usr1 }
        earlier = signals.select { |signal,| Signal.list.key?(signal) }.to_h { |signal, event| [signal, trap(signal) { note(event) }] }
        yield
      ensure
        earlier&.each { |signal, handler| trap(signal, handler || "DEFAULT") }
      end

      # Takes a signal, or the exit of a worker. A worker inherits the handlers that call this until it sets its own.
      def note(event)
        @is_to_stop = true if event == :stop
        return if event == :replace && @is_to_replace

        @is_to_replace = true if event == :replace
        @events << event
        @note&.write_nonblock(".", exception: false)
      end

      # Waits for the next signal or exit. Queue#pop would lose a signal that comes when this thread is about to sleep: the handler's
      # push makes the thread runnable, but then rb_threadptr_execute_interrupts (Ruby 3.3 to 4.0) restores the status from before.
      def next_event
        @noted.getbyte until (event = @events.pop(timeout: 0))
        @is_to_replace = false if event == :replace # one that comes from now on is another one
        event
      end

      # --- workers -------------------------------------------------------------------------------------------------

      def supervise
        @current = Array.new(@workers) # the serving process of each place
        @waiters = {} # pid => the thread that waits for its end
        @running = {} # pid => when it started, and the pipe by which it says that it serves
        @failed_starts = 0
        @orphaned, @alive = IO.pipe # the end of file tells workers that this process has ended
        @workers.times { |place| @current[place] = start(place) }
        notify_when_begun
        handle(next_event) until @stopping
        notify("STOPPING=1")
        end_workers
        raise "#{FAILED_STARTS} workers in a row ended before they served" if @failed_starts == FAILED_STARTS
      ensure
        [@orphaned, @alive].each { |io| io&.close }
      end

      def notify_when_begun
        Thread.new do
          sleep PAUSE / 10.0 until @stopping || @current.all? { |pid| serves?(pid) }
          notify("READY=1") unless @stopping
        rescue IOError, KeyError
          retry # a worker has ended
        end
      end

      # Kills a worker that does not answer. It is replaced then, as one that has died.
      def watch(pid, beats)
        Thread.new do
          seconds = START # for the first beat
          while true
            asked = Clock.now
            if beats.wait_readable(seconds)
              break unless beats.read_nonblock(READ, exception: false) # the end of the file: it has ended

              seconds = @worker_timeout
            elsif Clock.now - asked < seconds * 1.1 # otherwise this process has been stopped, too, and sees no beats yet
              break unless @running.key?(pid)

              @logger.error("worker #{pid} has not answered for #{seconds} s and is killed")
              break kill(:KILL, pid)
            end
          end
          beats.close
        end
      end

      # Shows the parent that this worker's loop runs.
      def beat(pipe)
        while true
          pipe.write_nonblock(".", exception: false)
          sleep @worker_timeout / 4.0
        end
      rescue Errno::EPIPE
        nil # the parent has ended
      end

      # Tells a worker to end. If the worker does not end, because it computes or is stopped, a separate thread kills it when its
      # time is up.
      def end_worker(pid, seconds)
        kill(:TERM, pid)
        return unless seconds

        Thread.new do
          sleep(seconds + MARGIN)
          next unless runs?(pid)

          @logger.error("worker #{pid} has not ended in time and is killed")
          kill(:KILL, pid)
        end
      end

      def handle(event)
        case event
        when :stop then @stopping = true
        when :replace
          @rack.reopen_logs # new workers inherit them
          @logger.info("workers #{@current.join(', ')} are replaced")
          @workers.times { |place| replace(place) unless @is_to_stop }
          @logger.info("workers #{@current.join(', ')} serve now")
        else ended(*event)
        end
      end

      # @return [Integer] PID
      def start(place)
        @before_fork&.call
        begins, begun = IO.pipe
        beats, beat = IO.pipe if @worker_timeout
        pid = Process.fork { work(place, begun, beat) }
        @running[pid] = [Clock.now, begins]
        watch(pid, beats) if beats
        @waiters[pid] = Thread.new { note([pid, Process.wait2(pid).last]) }
        pid
      ensure
        [begun, beat, *([begins, beats] unless pid)].each { |pipe| pipe&.close }
      end

      # @return [Boolean] whether the worker serves, or has served
      def serves?(pid)
        begins = @running.fetch(pid).last
        !begins.wait_readable(0).nil? && !begins.eof?
      end

      # Waits until a worker serves; false if it ends before, or the service does.
      def begins?(pid)
        begins = @running.fetch(pid).last
        latest = Clock.now + START
        until begins.wait_readable(PAUSE / 10.0)
          return false if @is_to_stop || Clock.now > latest
        end
        !begins.eof?
      end

      # The main program of a worker. A signal may reach all processes of the group, and the parent sends TERM as well, so
      # repeated signals have the effect of one. The end of the parent's pipe ends the worker too, or hastens its end.
      def work(place, begun, beat)
        end_before_handlers_of_parent
        %w[INT QUIT HUP USR1].each { |signal| trap(signal, "IGNORE") }
        stop, hasten = Thread::Queue.new, Thread::Queue.new
        trap("TERM") { stop << :stop }
        stop << :stop if @is_to_stop
        [@alive, *@running.each_value.map(&:last)].each(&:close)
        @listeners.keep(place)
        @after_fork&.call
        serve(@listeners.of(place), stop, hasten) do
          begun.write(".")
          begun.close
          Fiber.schedule { beat(beat) } if beat
          Fiber.schedule do
            @orphaned.read
            (stop.num_waiting.zero? ? hasten : stop) << :stop
          end
        end
      end

      # Ends a worker before it runs the handlers of at_exit that its parent had at the fork: they remove the parent's PID file, for
      # example. The worker's own handlers have run by then, and what Ruby does at its end is done here: it writes what is in the
      # buffers, and removes temporary files.
      def end_before_handlers_of_parent
        worker, inherited = Process.pid, temporary_files
        at_exit do
          error = $!
          warn(error.full_message) unless error.nil? || SystemExit === error
          ObjectSpace.each_object(IO) { |io| flush(io) }
          (temporary_files - inherited).each(&:close!) if Process.pid == worker # not in a child of it
          exit!(error.nil? || (SystemExit === error && error.status))
        end
      end

      def temporary_files = defined?(Tempfile) ? ObjectSpace.each_object(Tempfile).to_a : []

      def flush(io)
        io.flush unless io.closed?
      rescue SystemCallError, IOError
        nil # it is not open for writing, or its reader has gone
      end

      # Starts a new worker in a place, and ends the one it replaces. Both use the same listeners, so none is closed with
      # connections in its queue.
      def replace(place)
        earlier = @current[place]
        pid = start(place)
        if begins?(pid)
          @current[place] = pid
          end_worker(earlier, @stop_timeout)
        elsif !@is_to_stop
          @logger.error("worker #{pid} has not started serving; #{earlier} keeps running")
          kill(:KILL, pid)
        end
      rescue StandardError => error
        @logger.error("no worker could be started: #{error.message} (#{error.class}); #{earlier} keeps running")
      end

      def ended(pid, status)
        served = serves?(pid)
        began, = forget(pid)
        place = @current.index(pid) or return
        @failed_starts = 0 if served
        return if !served && fails?

        @logger.error("worker #{pid} ended (#{status}) and is replaced")
        sleep PAUSE if Clock.now - began < PAUSE
        restart(place)
      end

      # @return [Boolean] whether so many starts have failed that the service ends
      def fails? = (@failed_starts += 1) == FAILED_STARTS && (@stopping = true)

      def restart(place)
        @current[place] = start(place)
      rescue StandardError => error
        @logger.error("no worker could be started: #{error.message} (#{error.class})")
        return if fails? || @is_to_stop

        sleep PAUSE
        retry
      end

      def forget(pid)
        @waiters.delete(pid)
        @running.delete(pid).tap { |_, begins| begins.close }
      end

      # Closes the parent's listeners first, so the kernel refuses connections once the workers have closed theirs.
      def end_workers
        @listeners.close
        @running.each_key { |pid| end_worker(pid, @stop_timeout) }
        until @running.empty?
          event = next_event
          hasten if event == :stop
          forget(event.first) if Array === event
        end
      end

      def hasten
        @alive.close
        @running.each_key { |pid| end_worker(pid, 0) }
      end

      # Whether its number is not another process's yet, even if its exit is still queued.
      def runs?(pid) = @waiters[pid]&.alive?

      def kill(signal, pid)
        Process.kill(signal, pid) if runs?(pid)
      rescue Errno::ESRCH
        nil # its exit has been queued
      end
    end
  end
end
