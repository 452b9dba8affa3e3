# frozen_string_literal: true

require_relative "helper"
require "net/http"

# The example servers: each serves requests, and exits cleanly on a signal.
class TestExamples < ReactorTest
  def test_the_http_server_exits_cleanly_on_sigint = check_server(BACKEND.to_s)

  def test_the_http_server_with_connections_at_rest_exits_cleanly_on_sigint = check_server("#{BACKEND}+rest")

  def check_server(mode)
    status, words = run_example("examples/http_server.rb", mode, 0, 10, signal: :INT) do |line|
      port = line[/\d+$/].to_i
      idle = TCPSocket.new("127.0.0.1", port) # still connected when the signal comes
      bodies = Array.new(8) do
        Thread.new { Net::HTTP.start("127.0.0.1", port) { |http| Array.new(5) { http.get("/").body } } }
      end
      assert_equal [["x" * 10] * 5] * 8, bodies.map(&:value)
      assert_equal "x" * 10, Net::HTTP.get("127.0.0.1", "/", port)
      idle
    end
    assert_equal 0, status, words
    assert_includes words, "cpu_seconds"
  end

  def test_the_server_on_several_cores_exits_cleanly_on_sigterm
    skip "no SO_REUSEPORT on this platform" unless Socket.const_defined?(:SO_REUSEPORT) && Process.respond_to?(:fork)
    ractors = RUBY_VERSION < "4.0" ? 1 : 2 # more than one crash, see docs/performance.md
    { "workers" => 2, "ractors" => ractors, "threads" => 2 }.each do |mode, count|
      ended = run_example("examples/cores.rb", mode, count, signal: :TERM) do |address|
        bodies = Array.new(20) { Thread.new { Net::HTTP.get(URI(address.chomp)) } }.map(&:value)
        assert_equal ["ok"] * 20, bodies, mode
      end
      assert_equal [0, ""], ended, mode
    end
  end

  # Compares lines in any order.
  def check_links(*urls) = run_example("examples/check_links.rb", *urls).then { |status, words| [status, words.lines(chomp: true).sort] }

  # The first connection is closed without an answer.
  def test_the_links_are_checked_with_a_second_attempt_for_those_that_fail
    server = track(TCPServer.new("127.0.0.1", 0))
    answers = [nil, 200, 200, 200, 404]
    thread = Thread.new do
      answers.each do |code|
        client = server.accept
        nil until client.gets.to_s.chomp.empty?
        client.write("HTTP/1.1 #{code} -\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok") if code
        client.close
      end
    end
    url = "http://127.0.0.1:#{server.addr[1]}/"
    assert_equal [0, ["#{url}a: 200", "#{url}b: 200", "#{url}c: 200"]], check_links("#{url}a", "#{url}b", "#{url}c")
    assert_equal [1, ["#{url}gone: 404"]], check_links("#{url}gone")
    thread.join
    server.close
    assert_equal [1, ["#{url}down: Errno::ECONNREFUSED"]], check_links("#{url}down")
  end
end
