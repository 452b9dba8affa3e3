# frozen_string_literal: true

require_relative "helper"
require_relative "servers"
require "json"
require "net/http"

# examples/rails: a Rails application on PostgreSQL, served by Puma, by Async and by Reactor::Rack.
class TestRails < ReactorTest
  # A server with the application in a separate process.
  class RailsServer < RealServer
    PROGRAM = "ruby"
    APPLICATION = File.join(ReactorTest::ROOT, "examples/rails/config.ru")
    RUBY = [RbConfig.ruby, "-I", ReactorTest::LIB].freeze
    COMMANDS = {
      puma: ->(port) { [*RUBY, "-S", "puma", "-q", "-t", "5:5", "-b", "tcp://127.0.0.1:#{port}", APPLICATION] },
      async: ->(port) { [*RUBY, File.join(ReactorTest::ROOT, "examples/rails/async_server.rb"), port.to_s] },
      rackup: ->(port) { [*RUBY, "-e", "require 'rackup'; Rackup::Server.start", "--", "-s", "reactor", "-E", "production", "-o", "127.0.0.1", "-p", port.to_s, APPLICATION] },
      stopped: ->(port) { COMMANDS[:rackup].call(port)[..-2] + ["-O", "StopTimeout=1", "config.ru"] }
    }.freeze
    STOP_SIGNAL = :KILL # streams are open

    def initialize(name, database, upstream)
      super()
      @name = name
      # One connection for each of the two queries of a page, and one for the migration.
      @environment = { "DATABASE_URL" => "postgresql://tester@127.0.0.1:#{database}/postgres?pool=3", "UPSTREAM" => "http://127.0.0.1:#{upstream}/" }
    end

    private

    def command = ["env", *@environment.map { |name, value| "#{name}=#{value}" }, *COMMANDS.fetch(@name).call(port)]
  end

  # A service whose responses the test provides.
  class Upstream
    def initialize
      @listener = TCPServer.new("127.0.0.1", 0)
      @asked, @answers = Thread::Queue.new, Thread::Queue.new
      @thread = Thread.new { loop { serve(@listener.accept) } }
    end

    def port = @listener.addr[1]

    def until_asked(seconds) = @asked.pop(timeout: seconds)

    # Answers one request, even one that comes later.
    def answer = @answers << "ok"

    def close
      @thread.kill.join
      @listener.close
    end

    private

    def serve(socket)
      socket.gets("\r\n\r\n")
      @asked << true
      body = @answers.pop
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\nConnection: close\r\n\r\n#{body}")
      socket.close
    end
  end

  # Loads pages one after another, which would use up the connections if any were not returned.
  PAGES = 12

  # Whether these gems exist for this Ruby. CI does not install Rails: tests are defined only for installed gems (bin/setup
  # --rails).
  def self.installed?(*names)
    names.each { |name| gem name }
    require "pg"
    PostgresServer.absence.nil?
  rescue LoadError
    false
  end

  # Defines the test of a server that needs these gems in addition to Rails.
  def self.test(name, *gems, &block)
    return unless installed?("rails", "pg", *gems)

    define_method("test_#{name}") do
      instance_exec(&block)
    end
  end

  def test_the_middleware_of_the_guide_is_that_of_the_example
    guide, example = %w[docs/rails.md examples/rails/config.ru].map do |file|
      File.read(File.join(ROOT, file))[/^class InFiber.*?^end$/m].gsub(/ # .*/, "")
    end
    assert_equal example, guide
  end

  test(:puma_with_a_scheduler_for_each_thread, "puma") do
    serve(:puma) do |port|
      check_pages(port, "group")
      check_streams(port, 4) # each has one of Puma's five threads
      check_cable(port)
    end
  end

  test(:the_example_is_served_with_all_that_it_needs_until_it_is_ended, "puma") do
    IO.popen([RbConfig.ruby, "-I", LIB, File.join(ROOT, "examples/rails/serve.rb")], err: File::NULL) do |process|
      address = process.gets.to_s[%r{http://\S+(?=;)}] or flunk("no address")
      assert_equal %w[plain threads group], Array.new(3) { process.gets[%r{/page/(\w+) +\d+ ms$}, 1] }
      answers = %w[plain threads group].map { |way| Net::HTTP.get_response(URI("#{address}/page/#{way}")) }
      assert_equal %w[200 200 200], answers.map(&:code)
      assert_equal 1, answers.map(&:body).uniq.size
      Process.kill(:TERM, process.pid)
      process.read
    end
    assert_equal 0, $?.exitstatus
  end

  test(:an_async_server, "protocol-rack", "async-http") do
    serve(:async) do |port|
      check_pages(port, "async")
      check_streams(port, 30)
      check_cable(port)
    end
  end

  test(:a_server_of_this_library, "rackup") do
    serve(:rackup) do |port|
      check_pages(port, "group")
      check_streams(port, 30)
      check_cable(port)
    end
  end

  # The example with an action that waits between two rows.
  class StoppedServer < RailsServer
    STOP_SIGNAL = :TERM

    private

    def prepare = write("config.ru", <<~RUBY)
      application, = Rack::Builder.parse_file(#{APPLICATION.dump})
      ExampleController.define_method(:half) { Visit.transaction { Visit.create!; sleep; Visit.create! } }
      application.routes.disable_clear_and_finalize = true
      application.routes.draw { get "/half", to: "example#half" }
      run application
    RUBY
  end

  test(:an_action_that_is_cut_off_rolls_back_its_transaction, "rackup") do
    PostgresServer.run do |database|
      other = PG.connect(**database.options)
      client = StoppedServer.run(:stopped, database.port, 0) do |server|
        socket = track(TCPSocket.new("127.0.0.1", server.port))
        socket.write("GET /half HTTP/1.1\r\nHost: localhost\r\n\r\n")
        locks = "SELECT count(*) FROM pg_locks WHERE relation = 'visits'::regclass AND mode = 'RowExclusiveLock'"
        assert eventually { other.exec(locks).getvalue(0, 0) == "1" }, "no transaction was begun"
        socket
      end
      assert_equal ["", "0"], [client.read, other.exec("SELECT count(*) FROM visits").getvalue(0, 0)]
    ensure
      other&.close
    end
  end

  # The example with a channel and an action in a thread that leave a row when their client has gone.
  class LeftServer < RailsServer
    private

    def prepare = write("config.ru", <<~RUBY)
      application, = Rack::Builder.parse_file(#{APPLICATION.dump})
      VisitsChannel.define_method(:unsubscribed) { Visit.create! }
      ExampleController.include(ActionController::Live)
      ExampleController.define_method(:live) do
        response.headers["content-type"] = "text/event-stream"
        loop { response.stream.write(": hello\n\n") }
      ensure
        response.stream.close
        Visit.create!
      end
      application.routes.disable_clear_and_finalize = true
      application.routes.draw { get "/live", to: "example#live" }
      run application
    RUBY
  end

  test(:a_client_that_leaves_is_noticed_by_its_channel_and_by_its_live_action, "rackup") do
    PostgresServer.run do |database|
      other = PG.connect(**database.options)
      LeftServer.run(:stopped, database.port, 0) do |server|
        visits = -> { other.exec("SELECT count(*) FROM visits").getvalue(0, 0).to_i }
        subscribe(server.port).close
        assert eventually { visits.call == 1 }
        live = TCPSocket.new("127.0.0.1", server.port)
        live.write("GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        read_until(live, ": hello")
        live.close
        assert eventually { visits.call == 2 }
      end
    ensure
      other&.close
    end
  end

  HOLDERS = <<~'RUBY'
    require "active_record"
    ActiveSupport::IsolatedExecutionState.isolation_level = :fiber
    ActiveRecord::Base.establish_connection(ARGV[0])
    Reactor.run do
      scheduler = Fiber.scheduler
      connected = Thread::Queue.new
      select = -> { ActiveRecord::Base.with_connection { |connection| connection.select_value("SELECT 1") } }
      line = __LINE__
      waits = {
        between_queries: -> { select.(); connected << true; sleep },
        in_a_transaction: -> { ActiveRecord::Base.transaction { select.(); connected << true; sleep } },
        in_a_block: -> { ActiveRecord::Base.with_connection { connected << true; sleep } },
        permanent: -> { ActiveRecord::Base.lease_connection; connected << true; sleep }
      }
      fibers = waits.transform_values { |wait| Fiber.schedule(&wait) }
      waits.size.times { connected.pop }
      sleep 0.001 # each of them waits now
      scheduler.holders(longer_than: 0).each do |holder|
        puts [fibers.key(holder.status.fiber), holder.what, holder.place[/-e:(\d+):/, 1].to_i - line].join(" ")
      end
      trap(:USR1) { puts scheduler.dump.lines.grep(/ holds a /).size }
      Process.kill(:USR1, Process.pid)
      sleep 0.001 # a trap handler runs in a wait
      fibers.each_value(&:kill)
    end
  RUBY
  private_constant :HOLDERS

  test(:a_fiber_that_waits_with_a_connection_is_named_and_the_line_that_has_got_it) do
    PostgresServer.run do |database|
      said = child_says(HOLDERS, "postgresql://tester@127.0.0.1:#{database.port}/postgres?pool=4", gems: true).lines(chomp: true)
      lines = { in_a_transaction: 3, in_a_block: 4, permanent: 5 }
      assert_equal ["3", *lines.map { |wait, line| "#{wait} connection of the pool primary #{line}" }.sort], said.sort
    end
  end

  private

  def serve(name)
    @upstream = Upstream.new
    PostgresServer.run do |database|
      @database = database
      RailsServer.run(name, database.port, @upstream.port) { |server| yield server.port }
    end
  ensure
    @upstream.close
  end

  def get(port, path) = Net::HTTP.start("127.0.0.1", port, read_timeout: nil) { |http| http.get(path) }

  def visit(port) = Net::HTTP.post(URI("http://127.0.0.1:#{port}/visits"), "", "content-type" => "text/plain")

  # Both queries of the page wait for a lock, and the service responds last. So none ends before all have begun.
  def check_pages(port, way)
    @upstream.answer
    assert_equal [0, nil, "ok"], JSON.parse(get(port, "/page/#{way}").body) # Rails has read the columns of the table now
    assert @upstream.until_asked(TEST_TIMEOUT)
    locker = PG.connect(**@database.options)
    locker.exec("BEGIN; LOCK TABLE visits IN ACCESS EXCLUSIVE MODE")
    page = Thread.new { get(port, "/page/#{way}").body }
    assert @upstream.until_asked(TEST_TIMEOUT), "the page does not ask the service while its queries wait"
    assert eventually { locker.exec("SELECT count(*) FROM pg_locks WHERE NOT granted").getvalue(0, 0) == "2" }, "the two queries do not wait at once"
    locker.exec("COMMIT")
    @upstream.answer
    assert_equal [0, nil, "ok"], JSON.parse(page.value)
    PAGES.times { @upstream.answer }
    assert_equal ["200"] * PAGES, Array.new(PAGES) { get(port, "/page/#{way}").code }
  ensure
    page&.kill
    locker&.close
  end

  # Server-sent events, to all listeners at once.
  def check_streams(port, count)
    streams = Array.new(count) { TCPSocket.new("127.0.0.1", port) }
    streams.each { |stream| stream.write("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n") }
    streams.each { |stream| read_until(stream, ": hello") }
    visit(port)
    assert_equal ["data: 1"] * count, streams.map { |stream| read_until(stream, "data: 1") }
  ensure
    streams&.each(&:close)
  end

  def read_until(stream, text)
    stream.timeout = TEST_TIMEOUT
    line = stream.gets until line&.start_with?(text)
    line.chomp
  end

  IDENTIFIER = { channel: "VisitsChannel" }.to_json

  # Action Cable, with a minimal client.
  def check_cable(port)
    socket = subscribe(port)
    visit(port)
    assert_kind_of Integer, cable_message(socket) { |content| content["identifier"] == IDENTIFIER }["message"]
  ensure
    socket&.close
  end

  def subscribe(port)
    socket = TCPSocket.new("127.0.0.1", port)
    socket.timeout = TEST_TIMEOUT
    socket.write("GET /cable HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" \
                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: actioncable-v1-json\r\n\r\n")
    assert_includes socket.gets("\r\n\r\n"), " 101 "
    cable_message(socket) { |content| content["type"] == "welcome" }
    subscription = { command: "subscribe", identifier: IDENTIFIER }.to_json
    socket.write([0x81, 0x80 | subscription.bytesize, 0].pack("CCN"), subscription) # a text, masked by zeros
    cable_message(socket) { |content| content["type"] == "confirm_subscription" }
    socket
  end

  # The next message for which the block is true.
  def cable_message(socket)
    loop do
      _, length = socket.read(2).unpack("CC")
      length = socket.read(2).unpack1("n") if length == 126
      content = JSON.parse(socket.read(length))
      return content if yield(content)
    end
  end
end
