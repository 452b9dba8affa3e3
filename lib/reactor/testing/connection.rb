# frozen_string_literal: true

require "socket"
require_relative "pipe"

module Reactor
  module Testing
    # A connection between two hosts: two pairs of real sockets, one end of each held by the network, and a {Pipe} for each
    # direction. Side 0 is the client, side 1 the server. The connection keeps both programs' sockets alive, because a garbage
    # collection that closes one would change the course of events.
    #
    # @api private
    class Connection
      # The addresses of a socket, and whether its connection has been reset although it cannot tell.
      Endpoint = Struct.new(:local, :remote, :reset) do
        def connect_error = Errno::EISCONN
      end
      private_constant :Endpoint

      attr_reader :network, :hosts

      # @param ports [Array<Integer>] the client's and the server's
      # @param pair [Array<Socket>] the client's socket, and the network's end of it
      # @param server_end [Socket] the network's end at the server, already connected
      def initialize(network, client, server, ports, pair, server_end)
        @network = network
        @hosts = [client, server]
        @addresses = @hosts.map(&:address).zip(ports)
        @programs = [pair.first, nil]
        @endpoints = []
        @ends = [pair.last, server_end]
        @crashed = [] # sides whose hosts have crashed
        @pipes = [0, 1].map { |side| Pipe.new(self, side, *(side.zero? ? @ends : @ends.reverse)) }
      end

      # Drops what the client's socket has been filled with meanwhile, so that it becomes writable.
      def begin
        ours = @ends.first
        nil until ours.closed? || !ours.recv_nonblock(65_536, exception: false).is_a?(String)
        @pipes.each(&:listen)
        self
      end

      # @param socket [BasicSocket] the program's socket
      # @return [Endpoint]
      def belongs_to(socket, side)
        @programs[side] = socket
        local, remote = [side, 1 - side].map { |each| Addrinfo.new(Socket.sockaddr_in(*@addresses[each].reverse), :INET, :STREAM) }
        @endpoints[side] = Endpoint.new(local, remote, false)
      end

      # @return [Array<String>] the sender and the receiver, for the timeline
      def names(side) = ["#{@hosts.first.name}:#{@addresses.dig(0, 1)}", @hosts.last.name].rotate(side)

      def delay(side, &) = @network.delay(*@hosts.rotate(side), &)

      def crashed?(side) = @crashed.include?(side)

      def cut? = @network.cut?(*@hosts)

      # Continues with messages that were held back.
      def resume = @pipes.each(&:resume)

      # Resets the connection because one side is gone. The other side learns of it later.
      def reset_by(side)
        disconnect(side)
        @pipes[side].reset
      end

      # Drops a crashed host. Its own fibers do not notice.
      def drop(host)
        [0, 1].each do |side|
          next unless @hosts[side].equal?(host)

          @crashed << side
          @pipes[side].reset
        end
      end

      # Delivers a reset to this side.
      def reset_at(side)
        disconnect(side)
        close
      end

      def close_if_ended = (close if @pipes.all?(&:ended?))

      # @param sides [Array<Integer>] sides whose programs have ended
      def close(sides = @crashed)
        @ends.each(&:close)
        @programs.values_at(*sides).each { |program| program&.close }
        @network.forget(self)
      end

      private

      # Closing a UNIX socket with an unread byte resets the other end. A program that has shut down its side cannot send a byte.
      def disconnect(side)
        program, ours = @programs[side], @ends[side]
        program.sendmsg_nonblock("x", exception: false) unless program.nil? || program.closed?
      rescue SystemCallError
        @endpoints[side].reset = true
      ensure
        ours.close
      end
    end
    private_constant :Connection
  end
end
