# frozen_string_literal: true

module Reactor
  # Parses heads of HTTP/1 requests in plain Ruby. The results equal those of `http_request.rs`, except that errors are found only
  # once the head is complete.
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
    # @return [Integer] the length of the head; 0 if the head is incomplete; the negative status if the request is refused
    def parse(bytes, env)
      bytes = bytes.b
      start = bytes[/\A(?:\r?\n)*/n].bytesize
      size = bytes.index(/\r?\n\r?\n/n, start) or return 0
      size += $~[0].bytesize
      catch(:refused) do
        fill(env, *bytes[start...size].split(/\r?\n/n))
        size
      end
    end

    def refuse(status) = throw(:refused, -status)

    def fill(env, first, *headers)
      refuse(505) if first.match?(%r{ HTTP/(?!1\.[01]\z)\d\.\d\z}n)
      method, target, minor = REQUEST_LINE.match(first)&.captures || refuse(400)
      headers.map! { |line| HEADER.match(line)&.captures || refuse(400) }
      refuse(431) if headers.size > MAX_HEADERS
      host = only(headers, "host")
      check_body(only(headers, "content-length"), only(headers, "transfer-encoding"), minor)
      authority, path = split(method, target)
      host = authority || host
      refuse(400) unless host ? AUTHORITY.match?(host) : minor == "0"

      store(env, method, target, path, minor)
      headers.each { |name, value| store_header(env, name, value) unless name.casecmp?("host") }
      store_host(env, host) unless host.to_s.empty?
    end

    # Refuses a request if the end of its body is ambiguous.
    def check_body(length, encoding, minor)
      refuse(400) if (length && encoding) || (length && !length.match?(/\A\d{1,18}\z/n)) || (encoding && minor == "0")
      refuse(501) unless encoding.nil? || encoding.casecmp?("chunked")
    end

    # The value of a header that may occur at most once.
    def only(headers, name)
      values = headers.filter_map { |header, value| value if header.casecmp?(name) }
      values.size > 1 ? refuse(400) : values.first
    end

    # The authority of an absolute target, and the path with the query.
    def split(method, target)
      refuse(501) if method == "CONNECT"
      refuse(400) if target.include?("#") || !target.dup.force_encoding(Encoding::UTF_8).valid_encoding?
      return [nil, target] if target.start_with?("/") || (target == "*" && method == "OPTIONS")

      ABSOLUTE.match(target) ? [$1, $'] : refuse(400)
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
