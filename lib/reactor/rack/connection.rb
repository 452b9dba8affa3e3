# frozen_string_literal: true

require "timeout"

module Reactor
  class Rack
    # Reads the requests of one connection and has the application answer them. The application finds it in its environment as
    # `reactor.connection`, and may call {#gone?} and {#on_gone}.
    #
    # @api private
    class Connection
      # Seconds for which a client may keep sending while its connection is being closed. (Closing at once would reset the
      # connection, and the client might lose the response.)
      FAREWELL = 1
      # The values of hexadecimal digits, and the most digits of a chunk's size.
      HEXADECIMAL = Array.new(256) { |byte| byte.chr.match?(/\h/n) ? byte.chr.hex : nil }.freeze
      DIGITS = 8
      # The states of a TCP socket whose peer has closed it, in what Linux tells of it.
      CLOSED = [7, 8].freeze # CLOSE, CLOSE_WAIT
      private_constant :FAREWELL, :HEXADECIMAL, :DIGITS, :CLOSED

      # @return [Limits]
      attr_reader :limits

      # @return [String] the client's address
      attr_reader :address

      # @return [IO, OpenSSL::SSL::SSLSocket]
      attr_reader :io

      # @return [Float] when the latest request began to arrive
      attr_reader :began_at

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
        @env = @watchers = nil # of the request being answered
        @lost = @is_ending = false
        io.to_io.timeout = @limits.write_timeout
      end

      def to_io = @io.to_io

      # @return [String] short, because an error page shows the whole environment
      def inspect = "#<#{self.class} #{@address}>"

      def close = @io.close

      # Answers the requests that have arrived.
      #
      # @return [Boolean, :detached] whether to keep the connection
      def answer
        while (env = request)
          @left -= 1
          kept = @rack.admit? ? @rack.respond(self, env) : refuse_for_overload(env)
          return kept if kept == :detached
          return more_may_come? || Response.client_keeps?(env) ? farewell : false unless kept
          return true if @buffer.empty? && !Watching.read_ahead?(@io, IO::READABLE)
        end
      rescue Refused => error
        refuse(error.status)
      ensure
        @env = nil
        unwatch
      end

      def write(bytes) = to_client { |writing| writing.write(bytes) }

      # @return [Integer] bytes of the file that have been written
      def copy(file, length) = to_client { |writing| writing.copy(file, length) }

      # @return [Boolean] whether another request may follow
      def may_continue? = @left.positive? && !@server.stopping?

      # Hands the socket to the application, along with the bytes that the client has sent after its request.
      def hijack
        give_back(@io)
        @io
      end

      # Lends the connection to a streaming body, which may close what it is given. The connection stays open, because the kernel
      # would reset one that is closed before its client's bytes have been read, and the client would lose the end of the stream.
      #
      # @param protocol [Boolean] whether the stream is for another protocol: then it has no time limit, and gives the bytes read ahead
      # @yieldparam stream [IO, OpenSSL::SSL::SSLSocket]
      def lend(protocol:)
        if IO === @io
          stream = @io.dup
          stream.timeout = @limits.write_timeout
        else
          stream = @io
          stream.sync_close = false
        end
        give_back(stream) if protocol
        yield stream.extend(Stream)
      ensure
        stream.close if IO === stream
      end

      # Ends a request: reads the part of the body that the application has not read.
      #
      # @param kept [Boolean, :detached]
      # @return [Boolean, :detached] whether to keep the connection
      def finish(input, kept)
        unwatch
        return kept if kept == :detached || to_io.closed?

        @expires = Clock.now + FAREWELL
        input.finish ? kept : farewell
      rescue Gone, Refused
        farewell
      end

      # @return [Boolean] whether a write has failed because the client has gone or does not read
      def write_failed? = @lost

      # @return [Boolean] whether the client has gone or does not read, so that a failed write is not the application's fault
      def lost?
        @lost || ["", nil].include?(to_io.recv_nonblock(1, Socket::MSG_PEEK, exception: false))
      rescue SystemCallError, IOError
        true
      end

      # Whether the client has closed the connection, or at least its sending half. Requests that have arrived but have not been read
      # hide that, except over TCP on Linux.
      #
      # @return [Boolean]
      def gone?
        return true if lost?

        RUBY_PLATFORM.include?("linux") && to_io.local_address.ip? && CLOSED.include?(to_io.getsockopt(:TCP, :INFO).data.getbyte(0))
      end

      # Calls the block in a new fiber if the client goes before the response has been written. It is not called if the client sends
      # something else first, such as its next request.
      #
      # @return [nil]
      # @raise [ArgumentError] no block given
      # @raise [ThreadError] this thread has no scheduler
      def on_gone
        raise ArgumentError, "no block given" unless block_given?
        raise ThreadError, "on_gone needs a thread with a scheduler" unless Fiber.scheduler

        env = @env
        (@watchers ||= []) << Fiber.scheduler.on_ready(to_io, transient: true) { yield if goes?(env) }
        nil
      end

      # Resets the connection, so that the client knows the response is incomplete, whatever its framing.
      #
      # @return [false]
      def abort
        to_io.setsockopt(Socket::Option.linger(true, 0))
        to_io.close
        false
      end

      # Shuts down the sending half, then waits for the client to close the connection. Once.
      #
      # @return [false]
      def farewell
        return false if @is_ending

        @is_ending = true
        end_sending
        ends_at = Clock.now + FAREWELL
        to_io.readpartial(READ * 4) while (left = ends_at - Clock.now).positive? && to_io.wait_readable(left)
        false
      rescue SystemCallError, IOError
        false
      end

      # @param most [Integer] maximum number of bytes, at least 1
      # @return [String] some bytes of a body
      # @raise [Gone, Refused]
      def body_bytes(most)
        more if @buffer.empty?
        take(most)
      end

      # Takes chunks that have arrived whole, as many as fit, up to one that has an extension or is malformed.
      #
      # @param most [Integer] maximum number of bytes
      # @return [Array(String, Integer)] their bytes, and the number of bytes around these
      def whole_chunks(most)
        bytes = String.new
        ended = 0 # where the last of them ends
        while true
          at, size = ended, 0
          while at - ended < DIGITS && (digit = HEXADECIMAL[@buffer.getbyte(at) || 0])
            size = (size << 4) | digit
            at += 1
          end
          ends = at + 2 + size
          break unless size.positive? && bytes.bytesize + size <= most && line_end?(at) && line_end?(ends)

          bytes << @buffer.byteslice(at + 2, size)
          ended = ends + 2
        end
        take(ended) if ended.positive?
        [bytes, ended - bytes.bytesize]
      end

      # @return [String] a line of a chunked body, without its line end
      def body_line(most = READ)
        until (at = @buffer.index("\r\n"))
          raise Refused, 400 if @buffer.bytesize > most

          more
        end
        line = take(at + 2).chomp("\r\n")
        raise Refused, 400 if at > most || line.match?(CONTROLS)

        line
      end

      private

      # @return [Boolean] whether the client goes while this request is answered. A TLS client announces its end just before.
      def goes?(env)
        10.times { gone? || IO === @io ? break : sleep(0.02) }
        gone? && @env.equal?(env)
      end

      def unwatch = @watchers = @watchers&.each(&:cancel) && nil

      def line_end?(at) = @buffer.getbyte(at) == 13 && @buffer.getbyte(at + 1) == 10

      def to_client
        yield Writing.new(@io)
      rescue *Server::CLIENT_GONE, IO::TimeoutError
        @lost = true
        raise
      end

      # Reads a request whose first bytes have arrived.
      #
      # @return [Hash, nil] the request's environment; nil if the client has closed the connection
      def request
        @began_at = Clock.now
        @buffer = read or return if @buffer.empty?

        env = @env = @rack.environment(self)
        size = Internal.parse_request(@buffer, env)
        size = rest_of_head(env) or return if size.zero?

        size = -431 if size > @limits.header_size
        raise Refused, -size if size.negative?

        take(size)
        @expires = nil
        @rack.believe_proxy(env)
        env["rack.input"] = input(env)
        upgrade = env["HTTP_UPGRADE"]
        env["rack.protocol"] = upgrade.split(/\s*,\s*/) if upgrade && env["HTTP_CONNECTION"]&.match?(/(?:\A|,)[ \t]*upgrade[ \t]*(?:,|\z)/i)
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
        raise Refused, 417 unless expect.nil? || expect.split(",").all? { |one| one.strip.casecmp?("100-continue") }

        Input.new(self, length, !expect.nil? && env["SERVER_PROTOCOL"] != "HTTP/1.0")
      end

      def receive(most)
        @io.readpartial(most)
      rescue StandardError
        Writing.forget_errors(@io)
        raise
      end

      # @return [String, nil] nil if the client has closed the connection
      def read
        receive(READ)
      rescue EOFError
        nil
      rescue IO::TimeoutError
        raise Refused, 408
      end

      # Puts back what has been read ahead, and lifts the limit.
      def give_back(io)
        io.to_io.timeout = nil
        @buffer.define_singleton_method(:chr) { self } # OpenSSL puts back what this returns: of a String, one character
        io.ungetc(@buffer) unless @buffer.empty?
      end

      def end_sending
        unless IO === @io
          @io.sync_close = false
          @io.close # tells a TLS client
          @io.sync_close = true
          Writing.forget_errors(@io)
        end
        to_io.close_write
      end

      # Whether the client may be sending more than the requests answered so far.
      def more_may_come? = !@buffer.empty? || @left.zero? || @server.stopping?

      # Receives more bytes of a body.
      def more
        now = Clock.now
        @expires ||= now + @limits.body_timeout
        raise Refused, 408 if now >= @expires

        @buffer << Timeout.timeout(@expires - now) { receive(READ * 4) }
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
      def refuse_for_overload(env)
        @rack.log(self, env, 503, 0)
        write("HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n")
        finish(env["rack.input"], true)
      end

      def refuse(status)
        @rack.log(self, @env || {}, status, 0, @buffer)
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
