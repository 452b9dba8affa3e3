# frozen_string_literal: true

require "json"
require "socket"
require_relative "../clock"
require_relative "../observe/socket_place"
require_relative "look"

module Reactor
  module Top
    # The observed process. Nothing here waits for longer than it says, because the process may be stopped or dead.
    class Source
      # The process cannot be looked at; the message says why.
      class Failure < StandardError
      end

      # Seconds that {#look} waits for, unless another number is given.
      LIMIT = 3

      # @return [Integer]
      attr_reader :pid

      # @param pid [Integer]
      # @param limit [Numeric] seconds that {#look} waits for, at most
      def initialize(pid, limit = LIMIT)
        @pid = pid
        @limit = limit
        @socket = nil
      end

      # @return [Look]
      # @raise [Failure] the process does not answer within the limit, does not observe, or is not there
      def look
        limit = Clock.now + @limit
        until (found = advance)
          left = limit - Clock.now
          raise Failure, format("process %d has not answered for %g s", @pid, @limit) unless left.positive?

          io ? io.wait_readable(left) : sleep([left, 0.05].min)
        end
        found
      ensure
        drop
      end

      # @return [Socket, nil] to be waited for before the next {#advance}; nil if the process takes no connections now
      def io = @socket

      # Begins a look, or goes on with it. Never waits.
      #
      # @return [Look, nil] nil while the answer is not complete
      # @raise [Failure] there will be none
      def advance
        connect unless @socket
        return unless @socket

        while (part = @socket.read_nonblock(65_536, exception: false)).is_a?(String)
          @text << part
        end
        finish unless part # nil is the end
      rescue SystemCallError
        drop
        raise Failure, absence
      end

      # Gives up the look that is under way.
      def drop
        @socket&.close
        @socket = nil
      end

      private

      def connect
        path = SocketPlace.find(@pid) or raise Failure, absence
        @text = +""
        @socket = Socket.new(:UNIX, :STREAM)
        # It accepts none if too many wait already.
        return drop if @socket.connect_nonblock(Socket.sockaddr_un(path), exception: false) == :wait_writable

        owner, = @socket.getpeereid
        raise Failure, "the socket of process #{@pid} is served by user #{owner}" unless owner == Process.euid
      rescue SocketPlace::Untrusted => error
        raise Failure, error.message
      end

      def finish
        drop
        document = JSON.parse(@text.force_encoding(Encoding::UTF_8), symbolize_names: true)
        raise Failure, "process #{@pid}: #{document[:error]}" if document[:error]

        Look.new(document)
      rescue JSON::ParserError, KeyError
        raise Failure, @text.empty? ? absence : "process #{@pid} answers in another form: is its reactor another version than #{VERSION}?"
      end

      def absence
        Process.kill(0, @pid)
        "process #{@pid} is not observed: it has to call Reactor.observe"
      rescue Errno::ESRCH
        "there is no process #{@pid}"
      rescue Errno::EPERM
        "process #{@pid} belongs to another user"
      end
    end
  end
end
