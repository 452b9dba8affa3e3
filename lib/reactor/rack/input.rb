# frozen_string_literal: true

module Reactor
  class Rack
    # The body of a request, as `rack.input`. Its bytes are read from the connection only as the application reads them. The
    # methods work like those of IO; strings are binary.
    class Input
      # The most bytes to read and discard to keep a connection whose request body the application has not read.
      SKIPPED = 65_536
      TRAILER = /\A[!#$%&'*+.^_`|~0-9A-Za-z-]+:/
      private_constant :SKIPPED, :TRAILER

      # @param connection [Connection]
      # @param length [Integer, nil] nil: the body is chunked
      # @param expects [Boolean] whether the client waits for "100 Continue" before sending the body
      # @api private
      def initialize(connection, length, expects)
        @connection = connection
        @chunked = length.nil?
        @left = length || 0 # unread bytes of the body, or of the current chunk
        @received = 0 # size of all chunks so far
        @extensions = 0 # size of all chunk extensions so far
        @framing = 0 # number of all bytes around chunks so far
        @expects = expects
        @ended = length&.zero?
        @lines = nil # bytes that #gets has read ahead, starting at @at
        @failed = nil # the error that ended the body early
        @has_ended = @reading = false
      end

      # @param length [Integer, nil] maximum number of bytes; nil: reads to the end
      # @param buffer [String, nil] is overwritten with the result
      # @return [String, nil] nil at the end of the body, unless length is nil or 0
      # @raise [TypeError] length is not an Integer, nor converted to one by `to_int`
      # @raise [ArgumentError] length is negative
      # @raise [EOFError] the client has closed the connection before the end of the body
      # @raise [StandardError] the body violates HTTP or a limit, or takes too long; unless the application rescues the error, the
      #   response is 4xx
      # @raise [IOError] the request has been answered
      def read(length = nil, buffer = nil)
        unless length.nil?
          raise TypeError, "no implicit conversion of #{length.class} into Integer" unless length.respond_to?(:to_int)
          raise ArgumentError, "negative length #{length} given" if (length = length.to_int).negative?
        end
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

      # Does nothing, because the connection belongs to the server.
      def close = nil

      # @return [String] as {Connection#inspect}
      def inspect = "#<#{self.class}>"

      # @return [Boolean] whether the end has been reached
      # @api private
      def ended? = @ended

      # @return [Boolean] whether the rest can be read after the response, so that another request may follow
      # @api private
      def finishable?
        @ended || !(@failed || @expects || @reading || (!@chunked && @left > SKIPPED))
      end

      # Reads to the end if it is near. From then on, the application cannot read.
      #
      # @return [Boolean] whether the end has been reached
      # @api private
      def finish
        can_continue = finishable?
        @has_ended = true
        return can_continue if @ended || !can_continue

        left = SKIPPED
        left -= next_bytes(READ)&.bytesize.to_i until @ended || left.negative?
        @ended
      end

      private

      # @return [String, nil] some bytes; nil at the end
      def piece(most)
        raise IOError, "the request has ended" if @has_ended
        raise @failed if @failed
        return lines(most) if @lines

        @reading = true
        bytes = next_bytes(most)
        @reading = false
        bytes
      rescue Refused, Gone => error
        @failed = error # later bytes may not belong to this body
        raise
      end

      def next_bytes(most)
        return if @ended

        continue
        if @chunked && @left.zero?
          bytes, framing = @connection.whole_chunks(most)
          count(bytes.bytesize, framing)
          return bytes unless bytes.empty?

          next_chunk
          return if @ended
        end
        bytes = @connection.body_bytes([most, @left].min)
        @left -= bytes.bytesize
        end_part if @left.zero?
        bytes
      end

      def read_ahead
        @at = 0
        @lines = piece(READ * 4)
      end

      # Takes bytes that #gets has read ahead.
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
        line = @connection.body_line
        digits, extension = line.match(/\A0*(\h{1,8})[ \t]*(;.*)?\z/)&.captures
        raise Refused, 400 unless digits

        @extensions += extension.bytesize if extension
        raise Refused, 413 if @extensions > @connection.limits.header_size

        @left = digits.hex
        count(@left, line.bytesize + 4)
        skip_trailers if @left.zero?
      end

      # Counts bytes of chunks, and those around them: chunks of one byte have five.
      def count(bytes, framing)
        @received += bytes
        @framing += framing
        limits = @connection.limits
        raise Refused, 413 if @received > limits.body_size || @framing > limits.body_size + limits.header_size
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
