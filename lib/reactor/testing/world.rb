# frozen_string_literal: true

require "rbconfig"
require "timeout"
require_relative "../checks"
require_relative "argument_checks"
require_relative "host"
require_relative "network"
require_relative "trace"

module Reactor
  module Testing
    # The world of {Testing.simulate}: hosts, the links between them, and faults of both. Call its methods in the block, or later
    # in any fiber of the world. Times are virtual seconds.
    class World
      # The default of `until:`, in seconds.
      DAY = 86_400
      # Probabilities of a forced yield. Each seed picks one: some bugs need quiet, others need many yields.
      YIELD_RATES = [0, 0.05, 0.3].freeze
      # Paths of this library, of Ruby's own code and of gems.
      NOT_THE_PROGRAMS = %r{\A(#{Regexp.union(File.dirname(__dir__), RbConfig::CONFIG["rubylibdir"])}|<internal:)|/gems/}
      # Errors that are meant for the process, not failures of the world.
      INTERRUPTS = [SignalException, SystemExit, Timeout::ExitException].freeze
      private_constant :DAY, :YIELD_RATES, :NOT_THE_PROGRAMS, :INTERRUPTS

      # @return [Trace]
      attr_reader :trace

      # @return [Exception, nil]
      # @api private
      attr_accessor :failure

      # @api private
      attr_reader :network, :scheduler, :entropy, :allow

      # @param yields [Integer, nil] maximum number of forced yields
      # @param faults [Integer, nil] maximum number of drops, resets and splits
      # @api private
      def initialize(scheduler, random, complete, limit: nil, yields: nil, faults: nil, allow: [])
        @scheduler = scheduler
        @random = random
        @entropy = Random.new(random.rand(1 << 32))
        @allow = allow
        @trace = Trace.new(scheduler, complete)
        @network = Network.new(self, Random.new(random.rand(1 << 32)), faults)
        @limit = Checks.seconds(:until, limit)
        @hosts = {}
        @checks = []
        @outcome = Thread::Queue.new
        @yield_rate = YIELD_RATES.sample(random: random)
        @yields_left = yields&.to_f || Float::INFINITY
        @yields = @moments = 0
      end

      # Adds a host. Its block runs when the block of {Testing.simulate} has ended, and again after each {#restart}. It uses
      # TCPServer, TCPSocket, Socket, Net::HTTP, OpenSSL and so on as usual, and reaches other hosts by name. The world does not
      # wait for it.
      #
      # @param name [String]
      # @return [void]
      # @raise [ArgumentError] no block given; the name is taken
      def host(name, &block) = add(name, false, block)

      # Adds a host like {#host}, but the world waits for its fibers: it ends when those of all clients have ended. A client that
      # has crashed is not waited for, unless a block of {#at} is still to come, which may restart it.
      #
      # @param (see #host)
      # @return [void]
      # @raise (see #host)
      def client(name, &block) = add(name, true, block)

      # Sets how messages travel, in both directions: between two hosts, between one host and all others, or, without names, by
      # default. From a range, a value is drawn for each message.
      #
      # @param names [Array<String>] at most two
      # @param latency [Numeric, Range<Numeric>] seconds until a message arrives
      # @param drop [Numeric] 0..1: probability that a message is lost and resent after 0.2, 0.4, … seconds, as in TCP
      # @param reset [Numeric] 0..1: probability that a message resets its connection instead of arriving
      # @param split [Numeric] 0..1: probability that a read is cut short after a few bytes
      # @return [void]
      # @raise [ArgumentError] out of range; more than two names, or twice the same; there is no such host, which is checked when the
      #   hosts start
      def link(*names, latency: Network::LATENCY, drop: 0, reset: 0, split: 0)
        raise ArgumentError, "a link connects at most two hosts, not #{names.size}" if names.size > 2

        distinct(*names)
        names.each { |name| find(name) } if @started
        @network.link(names, latency, drop: drop, reset: reset, split: split)
      end

      # Runs the block at a given time.
      #
      # @param time [Numeric] seconds since the start of the world
      # @return [void]
      # @raise [TypeError, ArgumentError, RangeError] no number of seconds; no block given
      def at(time, &block)
        raise ArgumentError, "no block given" unless block

        time = Checks.seconds(:time, time) || raise(TypeError, "time must be a number of seconds, not nil")
        @moments += 1
        Host::Boot.start(nil) do
          sleep [time - self.time, 0].max
          block.call unless @has_ended
        rescue Exception => error # rubocop:disable Lint/RescueException -- also failed assertions
          self.fail(error)
        ensure
          @moments -= 1
          end_when_done
        end
        nil
      end

      # @return [Float] virtual seconds since the start of the world
      def time = (@ended_at || @scheduler.virtual_elapsed) / 1e9

      # From now on, nothing passes between the two hosts, or between one and all others, until {#heal}. Messages sent meanwhile
      # arrive after that.
      #
      # @return [void]
      # @raise [ArgumentError] there is no such host
      def partition(one, other = nil)
        distinct(one, other)
        @trace.add(find(one).name, other && find(other).name, :partition)
        @network.partition(one, other)
      end

      # Ends the {#partition} with the same arguments, or all of them if there are no arguments.
      #
      # @return [void]
      # @raise [ArgumentError] there is no such host
      def heal(one = nil, other = nil)
        [one, other].compact.each { |name| find(name) }
        @trace.add(one || "world", other, :heal)
        @network.heal(one, other)
      end

      # Ends the program of a host: its connections are reset, and its fibers end where they wait. Their `ensure` clauses run, but
      # sleeps and sockets in them raise Errno::ENETDOWN. Changes to objects that hosts share remain. Called by the host itself, it does
      # not return.
      #
      # @return [void]
      # @raise [ArgumentError] there is no such host
      def crash(name) = take_down(find(name))

      # Starts a host again, after {#crash} or after its block has ended. If it is still up, it crashes first. Before the hosts have
      # started, it does nothing.
      #
      # @return [void]
      # @raise [ArgumentError] there is no such host
      def restart(name)
        host = find(name)
        take_down(host) do
          next unless @started

          @trace.add(name, nil, :start)
          host.start
        end
      end

      # Adds a line to the timeline.
      #
      # @return [void]
      def log(text)
        @trace.add(Host::Boot.current&.host&.name || "world", nil, Trace.text(text.to_s))
        nil
      end

      # Runs the block when the world has ended without an error. Use it to check invariants.
      #
      # @return [void]
      # @raise [ArgumentError] no block given
      def check(&block)
        raise ArgumentError, "no block given" unless block

        @checks << block
        nil
      end

      # @return [String]
      def inspect = "#<#{self.class} #{@hosts.size} hosts, #{time} s>"

      # --- for the parts of the simulation -------------------------------------------------------------------------

      # @return [Host]
      # @raise [ArgumentError]
      # @api private
      def find(name) = @hosts[name] || raise(ArgumentError, "there is no host #{name.inspect}")

      # @return [Host, nil] by name or address
      # @api private
      def resolve(name) = @hosts[name] || @hosts.each_value.find { |host| host.address == name }

      # @return [Integer] forced yields so far
      # @api private
      attr_reader :yields

      # Occasionally lets another fiber run.
      #
      # @api private
      def maybe_yield
        return unless @yield_rate.positive? && !@has_ended && @random.rand < @yield_rate && @yields < @yields_left

        @yields += 1
        @trace.add(Host::Boot.current.host.name, nil, "yields at #{place}") if @yields_left.finite?
        @scheduler.yield
      end

      # Ends the world with an error.
      #
      # @param counts [Boolean] whether it is a failure, too, if it does not end the process
      # @api private
      def fail(error, counts = true)
        @failure ||= error if INTERRUPTS.any? { |kind| kind === error }
        return unless counts

        log("raises #{error.class}") unless @has_ended
        @outcome << error
      end

      # @return [Boolean]
      # @api private
      def interrupted? = INTERRUPTS.any? { |kind| kind === @failure }

      # Ends the world if all clients have ended. A crashed client does not count as ended while a block of {#at} may restart it.
      #
      # @api private
      def end_when_done
        @outcome << :done if @started && @has_clients && @hosts.each_value.all? { |host| host.done?(@moments.zero?) }
      end

      # Runs the world to its end.
      #
      # @raise [ArgumentError] the world would never end
      # @raise the error that has ended the world
      # @api private
      def run
        yield self
        raise ArgumentError, "a world needs a client, or until:" unless @has_clients || @limit

        @network.linked.each { |name| find(name) }
        @started = true
        @hosts.values.each(&:start)
        outcome = @outcome.pop(timeout: @limit || DAY)
        outcome = @outcome.pop while outcome == :done && !@outcome.empty? # the last fiber may have ended with an error
        check_progress unless outcome
        raise outcome if outcome.is_a?(Exception)

        @has_ended = true
        @checks.each(&:call)
        log("ends")
      rescue Exception => error # rubocop:disable Lint/RescueException -- also failed assertions
        log("raises #{error.class}") unless error.equal?(outcome)
        raise
      ensure
        @has_ended = true
        @ended_at = @scheduler.virtual_elapsed
        @hosts.each_value { |host| host.stop(@scheduler) }
      end

      private

      def add(name, client, block)
        raise ArgumentError, "no block given" unless block

        ArgumentChecks.host_name(name)
        raise ArgumentError, "there already is a host #{name}" if @hosts.key?(name)

        @has_clients ||= client
        host = @hosts[name] = Host.new(self, name, "10.0.#{@hosts.size / 250}.#{(@hosts.size % 250) + 1}", client, block)
        host.start if @started
        nil
      end

      def distinct(one = nil, other = nil)
        raise ArgumentError, "#{one.inspect} is one host, not two" if one && one == other
      end

      # Crashes the host if it is up. If the current fiber belongs to that host, the fiber ends too.
      #
      # @yield before the current fiber ends
      def take_down(host)
        boot = Host::Boot.current
        was_up = boot&.up?
        if host.up?
          @trace.add(host.name, nil, :crash)
          host.stop(@scheduler)
          @network.drop_host(host)
        end
        yield if block_given?
        end_when_done
        raise Host::Crash if was_up && !boot.up?
      end

      # @return [String] the current line of the program
      def place
        frame = caller_locations.find { |each| !each.path.match?(NOT_THE_PROGRAMS) }
        frame && "#{File.basename(frame.path)}:#{frame.lineno}"
      end

      # Called when the time limit elapses. If nothing would ever happen any more, the clients wait in vain.
      def check_progress
        waiting = @hosts.each_value.reject { |host| host.done?(true) }.map(&:name)
        return if waiting.empty? || (@limit && goes_on?)

        last = "cannot continue: nothing happens after #{(@scheduler.idle_at.to_i / 1e9).round(6)} s"
        why = goes_on? ? "has not ended within a day, the default of until:" : last
        raise Stuck, ["#{waiting.join(", ")} #{why}", *waits].join("\n")
      end

      # @return [Array<String>] what each fiber of a host waits for, and where
      def waits
        statuses = @scheduler.fibers.to_h { |status| [status.fiber, status.with(seconds: nil)] }
        @hosts.each_value.flat_map do |host|
          statuses.values_at(*host.boot.fibers).compact.map do |status|
            ["  #{host.name}: #{status.summary}", *status.backtrace.reject { |frame| frame.start_with?("<internal:") }].join("\n    ")
          end
        end
      end

      # Fibers that are due now have left the timers.
      def goes_on? = @scheduler.stats[:timers].positive? || @scheduler.fibers.any? { |status| status.state == :ready }
    end

    # Clients of a {World} wait for something that never happens, or do not end within its time.
    Stuck = Class.new(StandardError)
  end
end
