# frozen_string_literal: true

require "socket"
require_relative "argument_checks"
require_relative "connection"

module Reactor
  module Testing
    # The network of a {World}: knows the listeners, and delivers messages.
    #
    # @api private
    class Network
      # Default latency in seconds.
      LATENCY = (0.0002..0.002)
      # Seconds after which a connecting host first retries, and after which it gives up, as on Linux.
      FIRST_RETRY = 1.0
      GIVE_UP = 127.0
      # Lost messages are resent after 0.2, 0.4, … seconds, up to this.
      LONGEST_RESEND = 120
      # The first of the ports that the network assigns.
      EPHEMERAL = 49_152
      # Names of a host for itself, and for all of its addresses.
      LOOPBACK = %w[127.0.0.1 ::1 localhost].freeze
      ANY = ["0.0.0.0", "::", "", nil].freeze
      private_constant :FIRST_RETRY, :GIVE_UP, :LONGEST_RESEND, :EPHEMERAL, :LOOPBACK, :ANY

      Link = Struct.new(:latency, :drop, :reset, :split)
      Listener = Struct.new(:host, :port, :loopback, :path, :socket, :pending)
      private_constant :Link, :Listener

      # @return [Integer] faults so far
      attr_reader :faults

      # @param random [Random]
      # @param faults [Integer, nil] maximum number
      def initialize(world, random, faults)
        @world = world
        @random = random
        @faults_left = faults || Float::INFINITY
        @faults = @names = 0
        @links = Hash.new(Link.new(LATENCY, 0, 0, 0)) # one name or a pair of names => its link
        @cuts = []
        @listeners = {} # [host, port] => listener
        @orphans = []   # listening sockets of crashed hosts
        @connections = {}.compare_by_identity
        @never, @never_written = IO.pipe
      end

      def trace = @world.trace

      # @return [Integer] virtual nanoseconds
      def now = @world.scheduler.virtual_elapsed

      # --- links ---------------------------------------------------------------------------------------------------

      def link(names, latency, **shares)
        link = Link.new(ArgumentChecks.link(latency, shares), *shares.values)
        names.empty? ? @links.default = link : @links[names.sort] = link
        nil
      end

      # @return [Array<String>] the names of hosts that links have
      def linked = @links.keys.flatten

      # @yieldparam resent [Float] seconds, if the message is lost at first
      # @return [Float] seconds until the message arrives
      def delay(from, to)
        link = between(from, to)
        latency = @random.rand(link.latency)
        resent = 0.2
        resent *= 2 while resent < LONGEST_RESEND && fault?(link.drop)
        lost = (resent - 0.2).round(1)
        yield lost if lost.positive?
        (latency + lost).round(6)
      end

      def reset?(from, to) = fault?(between(from, to).reset)

      # @return [Integer] maximum number of bytes per message
      def chunk(from, to) = fault?(between(from, to).split) ? @random.rand(1..16) : 65_536

      def partition(one, other)
        @cuts << [one, *other]
        nil
      end

      def heal(one, other)
        @cuts.reject! { |cut| one.nil? || cut.sort == [one, *other].sort }
        @connections.each_key(&:resume)
        nil
      end

      def cut?(from, to)
        !from.equal?(to) && @cuts.any? { |cut| (cut - [from.name, to.name]).empty? }
      end

      # --- listening and connecting --------------------------------------------------------------------------------

      # @param name [String, nil] what the program binds to: a name or an address of its host
      # @return [Listener]
      # @raise [SystemCallError, SocketError] as bind(2)
      def bind(host, socket, name, port)
        raise Errno::EADDRNOTAVAIL, "bind(2) for #{name.inspect} port #{port}" unless resolve(host, name).equal?(host)

        port = (EPHEMERAL..).lazy.map { ephemeral }.find { |free| !listener(host, free) } if port.zero?
        raise Errno::EADDRINUSE, "bind(2) for #{host.name} port #{port}" if listener(host, port)

        @listeners[[host, port]] = Listener.new(host, port, LOOPBACK.include?(name), path, socket, [])
      end

      # @param listener [Listener]
      # @return [Connection::Endpoint, nil] for the socket that has just been accepted
      def accepted(listener, socket)
        connection = listener.pending.shift or return
        trace.add(*connection.names(1), :accept)
        connection.belongs_to(socket, 1)
      end

      # Connects, after the usual delays.
      #
      # @param pair [Array<Socket>] the program's socket, and the network's end of it
      # @return [Connection]
      # @raise [SystemCallError, SocketError] as connect(2)
      def connect(from, to, port, pair)
        target = "connect(2) for #{to.name.inspect} port #{port}"
        pause = FIRST_RETRY
        connection = begun = nil
        ports = [ephemeral, port]
        names = ["#{from.name}:#{ports.first}", to.name]
        trace.add(*names, "connect #{port}")
        while true
          sleep(delay(from, to) { |seconds| trace.add(*names, "lost, sent again after #{seconds} s: connect") })
          connection = knock(from, to, ports, pair) unless cut?(from, to)
          sleep(delay(to, from) { |seconds| trace.add(*names.reverse, "lost, sent again after #{seconds} s: answer") }) if connection
          return (begun = connection).begin if connection.is_a?(Connection)
          raise Errno::ECONNREFUSED, target if connection == :refused
          raise Errno::ETIMEDOUT, target if pause > GIVE_UP

          sleep pause # there is no response: the host is cut off, or its queue is full
          pause *= 2
        end
      ensure
        Connection === connection ? connection.begin : pair.last.close unless begun
      end

      # @return [Host] the host with this name or address
      # @raise [Socket::ResolutionError]
      def resolve(host, name)
        return host if LOOPBACK.include?(name) || ANY.include?(name)

        @world.resolve(name.to_s) || raise(Socket::ResolutionError, "getaddrinfo: Name or service not known (#{name})")
      end

      # @return [String] the address that a name stands for
      def address(host, name) = LOOPBACK.include?(name) ? LOOPBACK.first : resolve(host, name).address

      # --- for connections -----------------------------------------------------------------------------------------

      # Runs the block when the socket is ready.
      def watch(socket, events = IO::READABLE, &)
        outside { @world.scheduler.on_ready(socket, events, transient: true, &) unless socket.closed? }
      end

      # Runs the block after this many seconds.
      def after(seconds, &) = outside { @world.scheduler.on_ready(@never, timeout: seconds, transient: true, &) }

      def ephemeral = EPHEMERAL + ((@ports = (@ports || -1) + 1) % (65_536 - EPHEMERAL))

      def forget(connection) = @connections.delete(connection)

      # Drops a crashed host. Its sockets stay open, because its fibers must not notice a close before they end.
      def drop_host(host)
        dropped, kept = @listeners.partition { |_, listener| listener.host.equal?(host) }
        @listeners = kept.to_h
        dropped.each do |_, listener|
          listener.pending.clear
          @orphans << listener.socket
        end
        @connections.keys.each { |connection| connection.drop(host) }
      end

      def close
        @connections.keys.each { |connection| connection.close([0, 1]) }
        [*@orphans, *@listeners.each_value.map(&:socket)].each(&:close)
        [@never, @never_written].each(&:close)
        FileUtils.remove_entry(@folder) if @folder
      end

      private

      def between(from, to)
        names = [[from.name, to.name].sort, [to.name], [from.name]].find { |each| @links.key?(each) }
        @links[names]
      end

      def fault?(share)
        return false unless share.positive? && @random.rand < share && @faults < @faults_left

        @faults += 1
        true
      end

      def listener(host, port) = @listeners[[host, port]]&.then { |listener| listener unless listener.socket.closed? }

      # @return [Connection, Symbol, nil] :refused; or nil if the queue is full
      def knock(from, to, ports, pair)
        listener = listener(to, ports.last)
        return :refused if listener.nil? || (listener.loopback && !from.equal?(to))

        ours = Socket.new(:UNIX, :STREAM)
        ours.connect_nonblock(Socket.sockaddr_un(listener.path))
        connection = Connection.new(self, from, to, ports, pair, ours)
        @connections[connection] = true
        listener.pending << connection
        connection
      rescue Errno::EAGAIN
        ours.close
        nil
      rescue Errno::ECONNREFUSED
        ours.close
        :refused
      end

      # Runs the block in a fiber that belongs to no host, so that what it starts does not end with a host.
      def outside(&) = Host::Boot.current ? Fiber.new(storage: {}, &).resume : yield

      # @return [String] an address for a listening socket
      def path
        @names += 1
        RUBY_PLATFORM.include?("linux") ? "\0reactor-#{Process.pid}-#{object_id}-#{@names}" : File.join(folder, @names.to_s)
      end

      # Only Linux has socket names that are not files.
      def folder
        require "tmpdir"
        require "fileutils"
        @folder ||= Dir.mktmpdir("reactor")
      end
    end
    private_constant :Network
  end
end
