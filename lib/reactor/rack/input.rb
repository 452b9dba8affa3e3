# frozen_string_literal: true

module Reactor
  class Rack
    # The body of a request, as `rack.input`. It is read from the connection when the application reads it. Calls are those of IO; the
    # bytes are binary.
    class Input
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
        @lines = nil # bytes that #gets has read too many
      end

      # @param length [Integer, nil] bytes at most; nil: up to the end
      # @param buffer [String, nil] is filled with what was read
      # @return [String, nil] nil at the end of the body, unless the length is nil or 0
      # @raise [EOFError] the client has ended the connection within the body
      # @raise [Timeout::Error] the body takes too long
      def read(length = nil, buffer = nil)
        raise ArgumentError, "negative length #{length} given" if length&.negative?

        bytes = buffer ? buffer.replace("").force_encoding(Encoding::BINARY) : "".b
        until bytes.bytesize == length
          bytes << (piece(length ? length - bytes.bytesize : READ * 16) or break)
        end
        bytes unless bytes.empty? && length&.positive?
      end

      # @return [String, nil] the next line; nil at the end
      # @raise as {#read}
      def gets
        line = "".b
        while (bytes = piece(READ))
          from = line.bytesize
          at = (line << bytes).index("\n", from) or next
          @lines = line.slice!((at + 1)..) if at + 1 < line.bytesize
          break
        end
        line unless line.empty?
      end

      # @yieldparam line [String]
      # @raise as {#read}
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

      # Reads on to the end.
      #
      # @param most [Integer] bytes at most
      # @return [Boolean] whether the end was reached
      # @api private
      def skip(most)
        @lines = nil
        return @ended if @ended || @expects || (!@chunked && @left > most)

        most -= piece(READ)&.bytesize.to_i until @ended || most.negative?
        @ended
      end

      private

      # @return [String, nil] some bytes; nil at the end
      def piece(most)
        return lines(most) if @lines

        next_chunk if @chunked && @left.zero? && !@ended
        return if @ended

        continue
        bytes = @connection.body_bytes([most, @left].min)
        @left -= bytes.bytesize
        end_part if @left.zero?
        bytes
      end

      def lines(most)
        bytes, @lines = @lines, nil
        @lines = bytes.slice!(most..) if bytes.bytesize > most
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
        end
        @ended = true
      end

      def end_part
        return @ended = true unless @chunked

        raise Refused, 400 unless @connection.body_line.empty?
      end
    end

    # The body of a request without one.
    NO_INPUT = Input.new(nil, 0, false)
    private_constant :NO_INPUT
  end
end
