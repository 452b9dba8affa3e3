# frozen_string_literal: true

require "timeout"

module Reactor
  class Rack
    # Reads the requests of one connection and has the application answer them.
    #
    # @api private
    class Connection
      # Seconds for which a client may keep sending while its connection is being closed. (Closing at once would reset the
      # connection, and the client might lose the response.)
      FAREWELL = 1
      private_constant :FAREWELL

      # @return [Limits]
      attr_reader :limits

      # @return [String] the client's address
      attr_reader :address

      # @return [IO, OpenSSL::SSL::SSLSocket]
      attr_reader :io

      # @param rack [Rack]
      # @param server [Server]
      def initialize(rack, server, io)
        @rack = rack
        @server = server
        @io = io
        @limits = rack.limits
        @left = @limits.requests
        @address = address_of(io.to_io)
        @buffer = String.new # bytes received and not yet used
        @lost = false
        io.to_io.timeout = @limits.write_timeout
      end

      def to_io = @io.to_io

      def close = @io.close

      # Answers the requests that have arrived.
      #
      # @return [Boolean, :detached] whether to keep the connection
      def answer
        while (env = request)
          @left -= 1
          kept = @rack.admit? ? @rack.respond(self, env) : refuse_for_overload(env["rack.input"])
          return kept if kept == :detached
          return more_may_come? ? farewell : false unless kept
          return true if @buffer.empty? && !Watching.read_ahead?(@io, IO::READABLE)
        end
      rescue Refused => error
        refuse(error.status)
      end

      def write(bytes)
        @io.write(bytes)
      rescue *Server::CLIENT_GONE, IO::TimeoutError
        @lost = true
        raise
      end

      # @return [Boolean] whether another request may follow
      def may_continue? = @left.positive? && !@server.stopping?

      # Hands the socket to the application, along with the bytes that the client has sent after its request.
      def hijack
        @io.to_io.timeout = nil
        @io.ungetc(@buffer) unless @buffer.empty?
        @io
      end

      # Ends a request: reads the part of the body that the application has not read.
      #
      # @param kept [Boolean, :detached]
      # @return [Boolean, :detached] whether to keep the connection
      def finish(input, kept)
        return kept if kept == :detached

        @expires = Clock.now + FAREWELL
        input.finish ? kept : farewell
      rescue Gone, Refused
        farewell
      end

      # @return [Boolean] whether the client has gone or does not read, so that a failed write is not the application's fault
      def lost?
        @lost || ["", nil].include?(to_io.recv_nonblock(1, Socket::MSG_PEEK, exception: false))
      rescue SystemCallError, IOError
        true
      end

      # Resets the connection, so that the client knows the response is incomplete, whatever its framing.
      #
      # @return [false]
      def abort
        to_io.setsockopt(Socket::Option.linger(true, 0))
        to_io.close
        false
      end

      # Shuts down the sending half, then waits for the client to close the connection.
      #
      # @return [false]
      def farewell
        to_io.close_write if IO === @io
        @expires = Clock.now + FAREWELL
        while more
          @buffer.clear
        end
        false
      rescue Refused, SystemCallError, IOError
        false
      end

      # @param most [Integer] maximum number of bytes, at least 1
      # @return [String] some bytes of a body
      # @raise [Gone, Refused]
      def body_bytes(most)
        more if @buffer.empty?
        take(most)
      end

      # @return [String] a line of a chunked body, without its line end
      def body_line(most = 256)
        until (at = @buffer.index("\r\n"))
          raise Refused, 400 if @buffer.bytesize > most

          more
        end
        line = take(at + 2).chomp("\r\n")
        raise Refused, 400 if at > most || line.match?(/[\r\n\0]/)

        line
      end

      private

      # Reads a request whose first bytes have arrived.
      #
      # @return [Hash, nil] the request's environment; nil if the client has closed the connection
      def request
        @buffer = read or return if @buffer.empty?

        env = @rack.environment(self)
        size = Internal.parse_request(@buffer, env)
        size = rest_of_head(env) or return if size.zero?

        size = -431 if size > @limits.header_size
        raise Refused, -size if size.negative?

        take(size)
        @expires = nil
        env["rack.input"] = input(env)
        upgrade = env["HTTP_UPGRADE"]
        env["rack.protocol"] = upgrade.split(/\s*,\s*/) if upgrade && env["HTTP_CONNECTION"]&.match?(/\bupgrade\b/i)
        env
      end

      # @return [Integer, nil] as {Internal.parse_request}; nil if the client has closed the connection
      def rest_of_head(env)
        Timeout.timeout(@limits.header_timeout) do
          while true
            return -431 if @buffer.bytesize > @limits.header_size

            bytes = read or return
            @buffer << bytes
            next unless bytes.include?("\n") # no complete line, so the answer would be the same

            size = Internal.parse_request(@buffer, env)
            return size unless size.zero?
          end
        end
      rescue Timeout::Error
        -408
      end

      def input(env)
        length = env["CONTENT_LENGTH"]&.to_i
        return Input.new(self, 0, false) unless length || env.key?("HTTP_TRANSFER_ENCODING")
        raise Refused, 413 if length && length > @limits.body_size

        expect = env["HTTP_EXPECT"]
        raise Refused, 417 unless expect.nil? || expect.casecmp?("100-continue")

        Input.new(self, length, !expect.nil? && env["SERVER_PROTOCOL"] != "HTTP/1.0")
      end

      # @return [String, nil] nil if the client has closed the connection
      def read
        @io.readpartial(READ)
      rescue EOFError
        nil
      rescue IO::TimeoutError
        raise Refused, 408
      end

      # Whether the client may be sending more than the requests answered so far.
      def more_may_come? = !@buffer.empty? || @left.zero? || @server.stopping?

      # Receives more bytes of a body.
      def more
        now = Clock.now
        @expires ||= now + @limits.body_timeout
        raise Refused, 408 if now >= @expires

        @buffer << Timeout.timeout(@expires - now) { @io.readpartial(READ * 4) }
      rescue Timeout::Error, IO::TimeoutError
        raise Refused, 408
      rescue EOFError, Errno::ECONNRESET
        raise Gone, "the client has ended the connection"
      end

      def take(most)
        return @buffer.slice!(0, most) if @buffer.bytesize > most

        bytes, @buffer = @buffer, String.new
        bytes
      end

      # Refuses a request because of overload. The connection is kept, because a new one would cost more.
      def refuse_for_overload(input)
        write("HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n")
        finish(input, true)
      end

      def refuse(status)
        @rack.log_refusal(self, status)
        write("HTTP/1.1 #{status} #{REASONS[status]}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        farewell
      end

      def address_of(socket)
        address = socket.remote_address
        address.ip? ? address.ip_address : "127.0.0.1"
      rescue SystemCallError
        "127.0.0.1" # the client has gone
      end
    end
    private_constant :Connection
  end
end
