# frozen_string_literal: true

module Reactor
  class Rack
    # The body of a request, as `rack.input`. It is read from the connection when the application reads it. Calls are those of IO; the
    # bytes are binary.
    class Input
      # Bytes that are read for the sake of the connection when the application has not read them.
      SKIPPED = 65_536
      TRAILER = /\A[!#$%&'*+.^_`|~0-9A-Za-z-]+:/
      private_constant :SKIPPED, :TRAILER

      # @param connection [Connection]
      # @param length [Integer, nil] nil: the body is chunked
      # @param expects [Boolean] whether the client waits for "100 Continue" before it sends the body
      # @api private
      def initialize(connection, length, expects)
        @connection = connection
        @chunked = length.nil?
        @left = length || 0 # bytes of the body, or of the current chunk
        @received = 0 # bytes of all chunks that have begun
        @expects = expects
        @ended = length&.zero?
        @lines = nil # bytes that #gets has read too many, from @at on
        @failed = nil # what has ended it too early
        @is_over = @reading = false
      end

      # @param length [Integer, nil] bytes at most; nil: up to the end
      # @param buffer [String, nil] is filled with what was read
      # @return [String, nil] nil at the end of the body, unless the length is nil or 0
      # @raise [EOFError] the client has ended the connection within the body
      # @raise [StandardError] the body breaks HTTP or a limit, or takes too long; unless the application rescues it, the answer is 4xx
      # @raise [IOError] the request has been answered
      def read(length = nil, buffer = nil)
        raise ArgumentError, "negative length #{length} given" if length&.negative?

        bytes = buffer ? buffer.replace("").force_encoding(Encoding::BINARY) : "".b
        until bytes.bytesize == length
          bytes << (piece(length ? length - bytes.bytesize : READ * 16) or break)
        end
        bytes unless bytes.empty? && length&.positive?
      end

      # @return [String, nil] the next line; nil at the end
      # @raise [EOFError, StandardError] as {#read}
      def gets
        line = nil
        while @lines || read_ahead
          stop = @lines.index("\n", @at)
          part = lines((stop ? stop + 1 : @lines.bytesize) - @at)
          line = line ? line << part : part
          break if stop
        end
        line
      end

      # @yieldparam line [String]
      # @raise [EOFError, StandardError] as {#read}
      def each
        return to_enum unless block_given?

        while (line = gets)
          yield line
        end
        self
      end

      # Does nothing; the connection is the server's.
      def close = nil

      # @return [Boolean] whether the end was reached
      # @api private
      def ended? = @ended

      # @return [Boolean] whether what is left can be read after the answer, so that another request may follow
      # @api private
      def finishable?
        @ended || !(@failed || @expects || @reading || (!@chunked && @left > SKIPPED))
      end

      # Reads on to the end if that is near. The application cannot read any more.
      #
      # @return [Boolean] whether the end was reached
      # @api private
      def finish
        can_go_on = finishable?
        @is_over = true
        return can_go_on if @ended || !can_go_on

        left = SKIPPED
        left -= next_bytes(READ)&.bytesize.to_i until @ended || left.negative?
        @ended
      end

      private

      # @return [String, nil] some bytes; nil at the end
      def piece(most)
        raise IOError, "the request has ended" if @is_over
        raise @failed if @failed
        return lines(most) if @lines

        @reading = true
        bytes = next_bytes(most)
        @reading = false
        bytes
      rescue Refused, Gone => error
        @failed = error # no byte after it can be trusted to belong to this body
        raise
      end

      def next_bytes(most)
        next_chunk if @chunked && @left.zero? && !@ended
        return if @ended

        continue
        bytes = @connection.body_bytes([most, @left].min)
        @left -= bytes.bytesize
        end_part if @left.zero?
        bytes
      end

      def read_ahead
        @at = 0
        @lines = piece(READ * 4)
      end

      # Bytes that #gets has read too many.
      def lines(most)
        bytes = @lines.byteslice(@at, most)
        @at += bytes.bytesize
        @lines = nil if @at == @lines.bytesize
        bytes
      end

      def continue
        return unless @expects

        @expects = false
        @connection.write("HTTP/1.1 100 Continue\r\n\r\n")
      end

      def next_chunk
        continue
        digits = @connection.body_line[/\A(\h{1,8})[ \t]*(?:;.*)?\z/, 1] or raise Refused, 400
        @left = digits.hex
        @received += @left
        raise Refused, 413 if @received > @connection.limits.body_size

        skip_trailers if @left.zero?
      end

      def skip_trailers
        left = @connection.limits.header_size
        until (line = @connection.body_line(left)).empty?
          left -= line.bytesize + 2
          raise Refused, 431 unless left.positive?
          raise Refused, 400 unless TRAILER.match?(line)
        end
        @ended = true
      end

      def end_part
        return @ended = true unless @chunked

        raise Refused, 400 unless @connection.body_line.empty?
      end
    end
  end
end
