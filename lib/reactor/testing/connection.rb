# frozen_string_literal: true

require "socket"
require_relative "pipe"

module Reactor
  module Testing
    # A connection between two hosts: two pairs of real sockets, of which the network has one end each, and a {Pipe} for each direction.
    # Side 0 is the client, and side 1 the server. It keeps the sockets of both programs alive, because a garbage collection that closes
    # one would change what happens.
    #
    # @api private
    class Connection
      # What a socket tells of itself.
      Endpoint = Struct.new(:local, :remote)
      private_constant :Endpoint

      attr_reader :network, :hosts

      # @param port [Integer] of the server
      # @param server_end [Socket] the network's end at the server, connected
      def initialize(network, client, server, port, server_end)
        @network = network
        @hosts = [client, server]
        @addresses = [[client.address, network.ephemeral], [server.address, port]]
        own, client_end = UNIXSocket.pair
        @programs = [own, nil]
        @ends = [client_end, server_end]
        @crashed = [] # sides
        @pipes = [0, 1].map { |side| Pipe.new(self, side, *(side.zero? ? @ends : @ends.reverse)) }
      end

      # @return [UNIXSocket] the client's
      def own = @programs.first

      def begin
        @pipes.each(&:listen)
        self
      end

      # @param socket [BasicSocket] what the program has
      # @return [Endpoint]
      def belongs_to(socket, side)
        @programs[side] = socket
        local, remote = [side, 1 - side].map { |each| Addrinfo.new(Socket.sockaddr_in(*@addresses[each].reverse), :INET, :STREAM) }
        Endpoint.new(local, remote)
      end

      def names(side) = [@hosts[side].name, @hosts[1 - side].name]

      def delay(side) = @network.delay(@hosts[side], @hosts[1 - side])

      def cut? = @network.cut?(*@hosts)

      # What was held goes on.
      def resume = @pipes.each(&:resume)

      # One side is gone. The other one learns of it later.
      def reset_by(side)
        disconnect(side)
        @pipes[side].reset
      end

      # A host has crashed. Its own fibers notice nothing any more.
      def drop(host)
        [0, 1].each do |side|
          next unless @hosts[side].equal?(host)

          @crashed << side
          @pipes[side].reset
        end
      end

      # A reset has arrived at this side.
      def reset_at(side)
        disconnect(side)
        close
      end

      def look_for_end = (close if @pipes.all?(&:ended?))

      # @param sides [Array<Integer>] whose programs are no more
      def close(sides = @crashed)
        @ends.each(&:close)
        @programs.values_at(*sides).each { |program| program&.close }
        @network.forget(self)
      end

      private

      # Closing a UNIX socket with a byte unread resets the other end.
      def disconnect(side)
        program, ours = @programs[side], @ends[side]
        program.sendmsg_nonblock("x", exception: false) unless program.nil? || program.closed?
      rescue SystemCallError
        nil
      ensure
        ours.close
      end
    end
    private_constant :Connection
  end
end
