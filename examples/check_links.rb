# frozen_string_literal: true

# Fetches URLs, a few at a time, and prints the status of each. Shows tasks that end together.
#
#   ruby -Ilib examples/check_links.rb URL …
#
# Each URL gets three attempts and five seconds, and all of them together get a minute. The exit status is 0 if all requests
# succeeded. Ctrl-C cancels the requests in progress.
require "reactor"
require "net/http"

# Maximum number of attempts per URL.
class Link
  ATTEMPTS = 3
  PAUSE = 0.1 # seconds before the second attempt, doubled for each later one
  SECONDS = 5
  UNREACHABLE = [SystemCallError, SocketError, EOFError, Timeout::Error].freeze

  def initialize(url)
    @uri = URI(url)
  end

  # @return [Array(Boolean, String)] whether the request succeeded, and a line about it
  def check
    attempt ||= 1
    response = Reactor.group(timeout: SECONDS) { Net::HTTP.get_response(@uri) }
    [response.is_a?(Net::HTTPSuccess), "#{@uri}: #{response.code}"]
  rescue *UNREACHABLE => error
    return [false, "#{@uri}: #{error.class}"] if attempt == ATTEMPTS

    sleep PAUSE * 2**(attempt - 1)
    attempt += 1
    retry
  end
end

abort "usage: check_links.rb URL …" if ARGV.empty?

good = Reactor.run do
  Reactor.group(limit: 8, timeout: 60) do |group|
    group.map(ARGV) { |url| Link.new(url).check.tap { |_, line| puts line } }
  end
end
exit good.all?(&:first)
