# frozen_string_literal: true

Gems.row "net-http", requires: %w[net/http], what: "`Net::HTTP.get`", call: ->(_, _) { Net::HTTP.get(URI(url)) }
Gems.row "http", what: "`HTTP.get`", call: ->(_, _) { HTTP.get(url).to_s }
Gems.row "httpx", what: "`HTTPX.get`", call: ->(_, _) { HTTPX.get(url).then { |answer| answer.raise_for_status.to_s } }
Gems.row "faraday", what: "`Faraday.get`, on Net::HTTP", call: ->(_, _) { Faraday.get(url).body }
Gems.row "excon", what: "`Excon.get`", call: ->(_, _) { Excon.get(url).body }
Gems.row "httpclient", what: "`HTTPClient#get_content`", call: ->(_, _) { HTTPClient.new.get_content(url) }
Gems.row "rest-client", what: "`RestClient.get`", call: ->(_, _) { RestClient.get(url).body }

Gems.row "typhoeus", verdict: :blocks, what: "`Typhoeus.get`, by libcurl",
  advice: "`Reactor.offload { Typhoeus.get(url) }`, another client",
  call: ->(_, _) { Typhoeus.get(url).body }

Gems.row "curb", verdict: :blocks, what: "`Curl.get`, by libcurl",
  advice: "`Reactor.offload { Curl.get(url) }`, another client",
  call: ->(_, _) { Curl.get(url).body_str }
