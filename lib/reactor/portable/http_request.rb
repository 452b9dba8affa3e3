# frozen_string_literal: true

module Reactor
  # Heads of HTTP/1 requests in plain Ruby: the same answers as `http_request.rs`, but an error is found only once the head is whole.
  module HTTPRequest
    TOKEN = /[!#$%&'*+.^_`|~0-9A-Za-z-]+/n
    REQUEST_LINE = %r{\A(#{TOKEN}) ([\x21-\x7e\x80-\xff]+) HTTP/1\.([01])\z}n
    HEADER = /\A(#{TOKEN}):[ \t]*((?:[^\x00-\x08\x0a-\x1f\x7f]*[^\x00-\x20\x7f])?)[ \t]*\z/n
    AUTHORITY = /\A(\[[\w:.%-]+\]|[\w.~!$&'()*+,;=%-]*)(?::(\d*))?\z/n
    ABSOLUTE = %r{\Ahttps?://([^/?]+)}in
    MAX_HEADERS = 100
    private_constant :TOKEN, :REQUEST_LINE, :HEADER, :AUTHORITY, :ABSOLUTE, :MAX_HEADERS

    module_function

    # @param bytes [String]
    # @param env [Hash] is filled
    # @return [Integer] the length of the head; 0 if it is not whole; or the status of a refusal, negative
    def parse(bytes, env)
      bytes = bytes.b
      start = bytes[/\A(?:\r?\n)*/n].bytesize
      size = bytes.index(/\r?\n\r?\n/n, start) or return 0
      size += $~[0].bytesize
      first, *headers = bytes[start...size].split(/\r?\n/n)
      return -505 if first.match?(%r{ HTTP/(?!1\.[01]\z)\d\.\d\z}n)

      method, target, minor = REQUEST_LINE.match(first)&.captures || (return -400)
      headers.map! { |line| HEADER.match(line)&.captures || (return -400) }
      return -431 if headers.size > MAX_HEADERS

      refused = refusal(headers, minor) and return refused
      authority, path = split(method, target)
      return authority if Integer === authority

      authority ||= only(headers, "host")
      return -400 if authority.nil? && minor == "1"
      return -400 if authority && !AUTHORITY.match?(authority)

      store(env, method, target, path, minor)
      headers.each { |name, value| store_header(env, name, value) }
      store_host(env, authority) unless authority.to_s.empty?
      size
    end

    # Of a head that leaves open where the body ends, or for whom it is.
    def refusal(headers, minor)
      length, encoding = only(headers, "content-length"), only(headers, "transfer-encoding")
      return -400 if %w[content-length transfer-encoding host].any? { |name| headers.count { |header, _| header.casecmp?(name) } > 1 }
      return -400 if (length && encoding) || (length && !length.match?(/\A\d{1,18}\z/n)) || (encoding && minor == "0")

      -501 unless encoding.nil? || encoding.casecmp?("chunked")
    end

    def only(headers, name) = headers.find { |header, _| header.casecmp?(name) }&.last

    def split(method, target)
      return -501 if method == "CONNECT"
      return -400 if target.include?("#") || !target.dup.force_encoding(Encoding::UTF_8).valid_encoding?
      return [nil, target] if target.start_with?("/") || (target == "*" && method == "OPTIONS")

      ABSOLUTE.match(target) ? [$1, $'] : -400
    end

    def store(env, method, target, path, minor)
      path, query = path.split("?", 2)
      env.update("REQUEST_METHOD" => method, "REQUEST_URI" => target, "PATH_INFO" => path.to_s.empty? ? "/" : path, "QUERY_STRING" => query || "",
                 "SERVER_PROTOCOL" => "HTTP/1.#{minor}")
    end

    def store_header(env, name, value)
      return if name.include?("_")

      name = name.upcase.tr("-", "_")
      name = "HTTP_#{name}" unless %w[CONTENT_TYPE CONTENT_LENGTH].include?(name)
      env[name] = env.key?(name) ? "#{env[name]}#{name == 'HTTP_COOKIE' ? '; ' : ', '}#{value}" : value
    end

    def store_host(env, authority)
      name, port = AUTHORITY.match(authority).captures
      env["HTTP_HOST"], env["SERVER_NAME"] = authority, name
      env["SERVER_PORT"] = port unless port.to_s.empty?
    end
  end
  private_constant :HTTPRequest
end
