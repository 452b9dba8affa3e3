# frozen_string_literal: true

module Reactor
  class Rack
    # Writes the response to one request.
    #
    # @api private
    class Response
      # Bytes to collect before writing.
      COLLECTED = 65_536
      CLOSE = /(?:\A|,)[ \t]*close[ \t]*(?:,|\z)/i
      KEEP_ALIVE = /(?:\A|,)[ \t]*keep-alive[ \t]*(?:,|\z)/i
      TOKEN = /\A[!#$%&'*+.^_`|~0-9A-Za-z-]+\z/
      # Headers that describe the connection or the body. A 103 does not have these headers.
      FINAL = %w[connection content-length transfer-encoding].freeze
      private_constant :COLLECTED, :CLOSE, :KEEP_ALIVE, :TOKEN, :FINAL

      # @return [Boolean] whether any of the response has been written
      attr_reader :began

      # @return [Integer] bytes of the body written so far
      attr_reader :bytes

      # @return [Integer]
      attr_reader :status

      # @return [Boolean] whether the client wants to send further requests
      def self.client_keeps?(env)
        wish = env["HTTP_CONNECTION"]
        !(wish && CLOSE.match?(wish)) && (env["SERVER_PROTOCOL"] != "HTTP/1.0" || KEEP_ALIVE.match?(wish))
      end

      def initialize(rack, connection, env)
        @rack = rack
        @connection = connection
        @is_old = env["SERVER_PROTOCOL"] == "HTTP/1.0"
        @is_head = env["REQUEST_METHOD"] == "HEAD"
        @keeps = Response.client_keeps?(env)
        @may_upgrade = env.key?("rack.protocol") && !@is_old
        @began = false
      end

      # @return [Boolean, :detached] whether the connection can be kept
      # @raise [TypeError, ArgumentError] the application's response is invalid; nothing has been written
      # @raise what the body raises; the response is then cut off
      def write(status, headers, body, input)
        @is_writing = true
        @keeps &&= input.finishable? && @connection.may_continue?
        @status = Integer(status)
        raise ArgumentError, "#{@status} is not a valid response status" unless @status == 101 || @status.between?(200, 999)
        raise ArgumentError, "the request asks for no upgrade, or its body has not been read" if @status == 101 && !(@may_upgrade && input.finish)

        @bytes = 0
        @length = @has_connection = @encoding = @hijack = nil
        head = head(headers)
        @length = nil if @encoding
        return detach(head) if @hijack
        return without_body(head, body) if @is_head || [204, 205, 304].include?(@status)
        return stream(head, body) if @status == 101 || !body.respond_to?(:each)

        body = array_in(body)
        @length ||= body.sum(&:bytesize) if Array === body && @encoding.nil?
        path = body.to_path if @encoding.nil? && body.respond_to?(:to_path)
        return file(head, path) if path && File.file?(path) # a pipe has no path

        parts(head, body)
        @keeps
      end

      # @return [IO, OpenSSL::SSL::SSLSocket] the connection, which belongs to the application from now on
      # @raise [IOError] the application has already returned a response
      def hijack
        raise IOError, "the response has begun" if @is_writing

        @connection.hijack
      end

      # Sends a 103 ahead of the response.
      def early_hints(headers)
        head = "HTTP/1.1 103 Early Hints\r\n".b
        headers.each { |name, value| lines(head, name.to_s, value) unless FINAL.include?(name.to_s.downcase) }
        @connection.write(head << "\r\n") unless @began || @is_old
        nil
      end

      private

      def head(headers)
        head = "HTTP/1.1 #{@status} #{REASONS[@status]}\r\n".b
        is_dated = false
        headers.each do |name, value|
          name = name.to_s.downcase
          case name
          when "content-length" then next @length = length(value)
          when "transfer-encoding" then next @encoding = value.to_s
          when "connection" then keep_or_close(value)
          when "date" then is_dated = true
          when "rack.protocol" then next upgrade(head, value)
          when /\Arack\./ then next (@hijack = value if name == "rack.hijack")
          end
          lines(head, name, value)
        end
        head << @rack.date unless is_dated
        head
      end

      def keep_or_close(value)
        @has_connection = true
        @keeps &&= Array(value).none? { |one| CLOSE.match?(one.to_s) }
      end

      def length(value)
        Integer(value.to_s, 10)
      rescue ArgumentError
        raise ArgumentError, "invalid content-length #{value.inspect}"
      end

      def upgrade(head, protocol)
        @has_connection = true
        lines(head, "upgrade", protocol)
        head << "connection: upgrade\r\n"
      end

      # @raise [ArgumentError] the header would let a client inject headers
      def lines(head, name, value)
        raise ArgumentError, "invalid header name #{name.inspect}" unless TOKEN.match?(name)

        value = value.to_s unless Array === value
        value = value.split("\n", -1) if String === value && value.include?("\n")
        String === value ? line(head, name, value) : value.each { |one| line(head, name, one.to_s) }
      end

      def line(head, name, value)
        value = value.b unless value.ascii_only? # any bytes may follow
        raise ArgumentError, "invalid value of header #{name}: #{value.inspect}" if value.match?(CONTROLS)

        head << name << ": " << value << "\r\n"
      end

      # The array that Rack middleware has wrapped, so that the length of the body is known. (`to_ary` of Rails 7.2 would read a
      # streaming body to its end.)
      def array_in(body)
        inner = body
        inner = inner.instance_variable_get(:@body) while defined?(::Rack::BodyProxy) && ::Rack::BodyProxy === inner
        Array === inner ? inner : body
      end

      # Completes the head.
      def framed(head)
        head << "content-length: #{@length}\r\n" if @length
        lines(head, "transfer-encoding", @encoding) if @encoding
        @keeps &&= @encoding.nil? || (@encoding.casecmp?("chunked") && !@is_old) # else the client cannot tell where the body ends
        head << "connection: #{@keeps ? 'keep-alive' : 'close'}\r\n" if !@has_connection && (!@keeps || @is_old)
        head << "\r\n"
      end

      def without_body(head, body)
        @encoding = nil
        body = array_in(body)
        @length ||= body.sum(&:bytesize) if @is_head && Array === body && body.any? # empty, if middleware has removed the body
        @length = { 204 => nil, 205 => 0 }.fetch(@status, @length)
        put(framed(head))
        @keeps
      end

      def put(bytes)
        @began = true
        @connection.write(bytes)
      end

      def parts(head, parts)
        is_chunked = @length.nil? && @encoding.nil? && !@is_old
        head << "transfer-encoding: chunked\r\n" if is_chunked
        @keeps &&= is_chunked || !@encoding.nil? || !@length.nil?
        out = framed(head)
        parts.each do |part|
          next if part.empty?

          @bytes += part.bytesize
          raise ArgumentError, "the body is longer than its content-length" if @length && @bytes > @length

          out << part.bytesize.to_s(16) << "\r\n" if is_chunked
          out << part.b
          out << "\r\n" if is_chunked
          next if Array === parts && out.bytesize < COLLECTED

          put(out)
          out = String.new
        end
        out << "0\r\n\r\n" if is_chunked
        put(out) unless out.empty?
        raise ArgumentError, "the body is shorter than its content-length" if @length && @bytes < @length
      end

      def file(head, path)
        File.open(path, "rb") do |file|
          @length ||= file.size
          put(framed(head))
          @bytes = @connection.copy(file, @length)
        end
        raise ArgumentError, "the file is shorter than its content-length" if @bytes < @length

        @keeps
      end

      # Writes a body that is called with a stream. The connection closes afterwards.
      def stream(head, body)
        raise TypeError, "a body must respond to each or call, and #{body.class} does not" unless body.respond_to?(:call)

        @keeps = false
        put(framed(head))
        @connection.lend(protocol: @status == 101) { |stream| body.call(stream) }
        false
      end

      # Handles a `rack.hijack` header: after the head, the connection belongs to the application.
      def detach(head)
        put(framed(head))
        @hijack.call(@connection.hijack)
        :detached
      end
    end
    private_constant :Response
  end
end
