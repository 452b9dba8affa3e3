# frozen_string_literal: true

require_relative "helper"
require "net/http"

# The example servers: each serves requests, and exits cleanly on a signal.
class TestExamples < ReactorTest
  def serve(mode)
    reader, writer = IO.pipe
    pid = Process.spawn(RbConfig.ruby, "-w", "-I", LIB, "examples/http_server.rb", mode, "0", "10",
                        chdir: ROOT, out: writer, err: writer, pgroup: true)
    writer.close
    line = Timeout.timeout(TEST_TIMEOUT) { reader.gets }
    yield line[/\d+$/].to_i
    Process.kill(:INT, pid)
    status = reap(pid, TEST_TIMEOUT)
    pid = nil
    [status, reader.read]
  ensure
    if pid
      Process.kill(:KILL, -pid)
      Process.wait(pid)
    end
    reader&.close
  end

  def test_the_http_server_exits_cleanly_on_sigint = check_server(BACKEND.to_s)

  def test_the_http_server_with_connections_at_rest_exits_cleanly_on_sigint = check_server("#{BACKEND}+rest")

  def check_server(mode)
    skip_under_stress
    status, words = serve(mode) do |port|
      idle = TCPSocket.new("127.0.0.1", port) # still connected when the signal comes
      bodies = Array.new(8) do
        Thread.new { Net::HTTP.start("127.0.0.1", port) { |http| Array.new(5) { http.get("/").body } } }
      end
      assert_equal [["x" * 10] * 5] * 8, bodies.map(&:value)
      assert_equal "x" * 10, Net::HTTP.get("127.0.0.1", "/", port)
      idle
    end
    assert_equal 0, status.exitstatus, words
    assert_includes words, "cpu_seconds"
  end

  def test_the_server_on_several_cores_exits_cleanly_on_sigterm
    skip_under_stress
    skip "no SO_REUSEPORT on this platform" unless Socket.const_defined?(:SO_REUSEPORT) && Process.respond_to?(:fork)
    ractors = RUBY_VERSION < "4.0" ? 1 : 2 # more than one crash, see docs/performance.md
    { "workers" => 2, "ractors" => ractors, "threads" => 2 }.each do |mode, count|
      reader, writer = IO.pipe
      pid = Process.spawn({ "REACTOR_BACKEND" => BACKEND.to_s }, RbConfig.ruby, "-w", "-I", LIB, "examples/cores.rb", mode, count.to_s,
                          chdir: ROOT, out: writer, err: writer, pgroup: true)
      writer.close
      address = Timeout.timeout(TEST_TIMEOUT) { reader.gets }.chomp
      bodies = Array.new(20) { Thread.new { Net::HTTP.get(URI(address)) } }.map(&:value)
      assert_equal ["ok"] * 20, bodies, mode
      Process.kill(:TERM, pid)
      status = reap(pid, TEST_TIMEOUT)
      pid = nil
      assert_equal [0, ""], [status.exitstatus, reader.read], mode
    ensure
      Process.kill(:KILL, -pid) && Process.wait(pid) if pid
      reader&.close
    end
  end

  def check_links(*urls)
    reader, writer = IO.pipe
    pid = Process.spawn({ "REACTOR_BACKEND" => BACKEND.to_s }, RbConfig.ruby, "-w", "-I", LIB, "examples/check_links.rb", *urls,
                        chdir: ROOT, out: writer, err: writer, pgroup: true)
    writer.close
    status = reap(pid, TEST_TIMEOUT)
    pid = nil
    [status.exitstatus, reader.read.lines(chomp: true)]
  ensure
    Process.kill(:KILL, -pid) && Process.wait(pid) if pid
    reader&.close
  end

  # The first connection is closed without an answer.
  def test_the_links_are_checked_with_a_second_attempt_for_those_that_fail
    skip_under_stress
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
    assert_equal [0, ["#{url}a: 200", "#{url}b: 200", "#{url}c: 200"]], check_links("#{url}a", "#{url}b", "#{url}c").then { |status, lines| [status, lines.sort] }
    assert_equal [1, ["#{url}gone: 404"]], check_links("#{url}gone")
    thread.join
    server.close
    assert_equal [1, ["#{url}down: Errno::ECONNREFUSED"]], check_links("#{url}down")
  end
end
