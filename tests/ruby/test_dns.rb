# frozen_string_literal: true

require_relative "helper"
require "net/http"
require "tmpdir"

# Name resolution: the results and errors of plain Ruby, while other fibers run.
class TestDns < ReactorTest
  # The first address of /etc/hosts: 127.0.0.1 or ::1.
  LOCALHOST = IPSocket.getaddress("localhost")
  # A label has at most 63 characters, so getaddrinfo(3) refuses this name without a query.
  INVALID_NAME = "#{"x" * 64}.invalid"

  # If there is one local address, Ruby 3.4 asks for the family :ipv4, which does not exist.
  RUBY_BUGS = [[SocketError, "unknown socket domain: ipv4"]].freeze

  NEWLINE = [SocketError, "newline at the end of hostname"].freeze

  # Each call must have the same result on a plain thread and in a fiber of a scheduler.
  QUESTIONS = {
    "answers" => [
      -> { Addrinfo.getaddrinfo("localhost", "http", nil, :STREAM) },
      -> { Addrinfo.getaddrinfo("localhost", nil, "AF_INET", "SOCK_DGRAM", Socket::IPPROTO_UDP) },
      -> { Addrinfo.getaddrinfo("localhost", nil, nil, :STREAM, nil, Socket::AI_CANONNAME) },
      -> { Addrinfo.getaddrinfo("127.1", 80, nil, :STREAM) },
      -> { Addrinfo.getaddrinfo(nil, "http", nil, :STREAM) },
      -> { Addrinfo.getaddrinfo("<any>", 80, nil, :STREAM) },
      -> { Addrinfo.udp("localhost", 53) },
      -> { Addrinfo.udp("localhost", "domain") },
      -> { Addrinfo.tcp("127.0.0.1", "http") },
      -> { Addrinfo.ip("fe80::1%lo") },
      -> { Addrinfo.foreach("localhost", 80).to_a },
      -> { Socket.getaddrinfo("localhost", "http", "AF_INET", :STREAM, Socket::IPPROTO_TCP, 0, false) },
      -> { Socket.getaddrinfo("127.0.0.1", "http", nil, :STREAM, nil, nil, :hostname) },
      -> { Socket.sockaddr_in("http", "localhost") },
      -> { Socket.sockaddr_in(80, nil) },
      -> { IPSocket.getaddress("fe80::1%lo") },
      -> { Socket.getnameinfo(Socket.sockaddr_in(80, "127.0.0.1")) },
      -> { Addrinfo.tcp("127.0.0.1", 80).getnameinfo },
    ],
    "errors" => [
      -> { Addrinfo.getaddrinfo(INVALID_NAME, 80) },
      -> { Addrinfo.getaddrinfo("localhost", "nosuchservice") },
      -> { Addrinfo.getaddrinfo("localhost", 80, nil, :NOSUCH) },
      -> { Addrinfo.getaddrinfo("localhost\n", 80) },
      -> { Addrinfo.getaddrinfo("local\0host", 80) },
      -> { Addrinfo.getaddrinfo("h" * 2000, 80) },
      -> { Addrinfo.getaddrinfo("localhost", 80, nosuch: 1) },
      -> { Socket.sockaddr_in(80) },
      -> { IPSocket.getaddress(INVALID_NAME) },
      -> { TCPServer.new(INVALID_NAME, 0) },
      -> { TCPServer.new("192.0.2.77", 0) },
      -> { TCPServer.new("localhost", "nosuchservice") },
      -> { udp { |s| s.connect(INVALID_NAME, 1) } },
      -> { udp { |s| s.send("x" * 70_000, 0, "localhost", "domain") } },
      -> { udp { |s| s.send("x", 0, "localhost") } },
      -> { udp(Socket::AF_INET6) { |s| s.connect("127.0.0.1", 1) } },
    ],
    "clients" => [
      -> { TCPSocket.new(INVALID_NAME, 80) },
      -> { TCPSocket.new("localhost", "tcpmux") },
      -> { TCPSocket.new("127.1", 1) },
      -> { TCPSocket.new("127.0.0.1", 1, "localhost", 0) },
      -> { TCPSocket.new(nil, 1) },
      -> { TCPSocket.new("localhost", "nosuchservice") },
      -> { TCPSocket.new("localhost", 65_537) },
      -> { TCPSocket.new("localhost\n", 1) },
      -> { TCPSocket.new("local\0host", 1) },
      -> { TCPSocket.new("h" * 2000, 1) },
      -> { TCPSocket.new("localhost", "1", "192.0.2.77", 0) },
      -> { TCPSocket.new },
      -> { TCPSocket.new("localhost", 1, connect_timeout: "x") },
      -> { TCPSocket.new("localhost", 1, connect_timeout: TEST_TIMEOUT, resolv_timeout: TEST_TIMEOUT) },
      -> { TCPSocket.new("localhost", 1, open_timeout: TEST_TIMEOUT) },
      -> { TCPSocket.new(INVALID_NAME, 1, fast_fallback: false) },
      -> { TCPSocket.open("localhost", 1) { flunk } },
      -> { Socket.tcp(INVALID_NAME, 80) },
      -> { Socket.tcp("localhost", "tcpmux") },
      -> { Socket.tcp("localhost", 1, "127.0.0.1") },
      # Plain Ruby waits for the whole time on Windows.
      *(-> { Socket.tcp("localhost", 1, connect_timeout: TEST_TIMEOUT, resolv_timeout: TEST_TIMEOUT) } unless WINDOWS),
      -> { Socket.tcp("localhost", 1, open_timeout: TEST_TIMEOUT) },
      -> { Socket.tcp("localhost", 1, fast_fallback: false) },
      -> { Socket.tcp },
      -> { Net::HTTP.get(INVALID_NAME, "/") },
    ]
  }.freeze

  QUESTIONS.each do |topic, questions|
    define_method(:"test_#{topic}_as_without_a_scheduler") do
      ours = in_fiber { questions.map { |question| answer(&question) } }
      different = questions.zip(ours).filter_map do |question, our|
        plain = run_plain { answer(&question) }
        [question.source_location.last, plain, our] unless plain == our || RUBY_BUGS.include?(plain)
      end
      assert_empty different, "line, plain Ruby, ours"
    end
  end

  # Compares the visible state of sockets that are made in different ways.
  def test_sockets_have_the_state_of_plain_rubys_sockets
    port = greeter
    shape = lambda do |socket|
      socket.gets
      [socket.class, socket.external_encoding, socket.internal_encoding, socket.binmode?, socket.sync, socket.close_on_exec?, socket.autoclose?,
       socket.do_not_reverse_lookup, socket.fcntl(3) & File::NONBLOCK, socket.lineno, socket.timeout, socket.peeraddr, socket.addr[0], socket.addr[2..],
       socket.inspect.gsub(/\d{4,}|fd \d+|0x\h+/, ""), socket.tty?, socket.closed?, socket.write("x"), socket.close_write, socket.read, socket.close]
    end
    makers = [
      -> { TCPSocket.new("localhost", port) }, -> { TCPSocket.new("127.0.0.1", port) }, -> { TCPSocket.open("localhost", port) },
      -> { TCPSocket.new("localhost", port.to_s, "127.0.0.1", 0) }, -> { Named.new(port) }, -> { Class.new(TCPSocket) { def self.name = "X" }.new("localhost", port) }
    ]
    makers.each do |maker|
      normal = ->(socket) { shape.(socket).then { |first, *rest| [first.name, *rest] } }
      assert_as_plain(maker.source_location.last.to_s) { normal.(maker.call) }
    end
    assert_equal [:kept, true], in_fiber { [(kept = nil) || TCPSocket.open("localhost", port) { |s| kept = s; :kept }, kept.closed?] }
    assert_equal [:kept, true], in_fiber { [(kept = nil) || Socket.tcp("localhost", port) { |s| kept = s; :kept }, kept.closed?] }
  end

  # A subclass with its own constructor.
  class Named < TCPSocket
    def initialize(port) = super("localhost", port)
  end

  def test_a_subclass_may_override_address_resolve
    asked = []
    stubbed = Class.new(Reactor::Scheduler) do
      define_method(:address_resolve) do |host|
        asked << host
        host == "somewhere.test" ? ["127.0.0.1"] : super(host)
      end
    end
    server = track(TCPServer.new("127.0.0.1", 0))
    results = []
    run_plain do
      Fiber.set_scheduler(stubbed.new)
      Fiber.schedule do
        TCPSocket.open("somewhere.test", server.addr[1]) { |socket| results << socket.peeraddr[3] }
        results << Addrinfo.tcp("somewhere.test", 80).ip_address << IPSocket.getaddress("localhost")
      end
    end
    assert_equal [["127.0.0.1", "127.0.0.1", LOCALHOST], %w[somewhere.test somewhere.test localhost]], [results, asked]
  end

  # Before the first scheduler, and after it: Ruby's Socket.tcp gets its addresses from Addrinfo.getaddrinfo.
  def test_a_method_that_a_program_has_replaced_is_called
    code = <<~RUBY
      require "socket"
      class TCPSocket
        alias __plain initialize
        def initialize(host, *rest) = ($asked = host) && __plain(host == "elsewhere.test" ? "127.0.0.1" : host, *rest)
      end
      server = TCPServer.new("127.0.0.1", 0)
      Thread.new do
        Fiber.set_scheduler(Reactor::Scheduler.new)
        Fiber.schedule do
          TCPSocket.new("elsewhere.test", server.addr[1]).close
          $VERBOSE = nil
          Addrinfo.define_singleton_method(:getaddrinfo) do |host, *rest, **|
            raise SocketError, "replaced" if host == "nowhere.test"

            [Addrinfo.tcp(host == "elsewhere.test" ? "127.0.0.1" : host, rest.first)]
          end
          Socket.tcp("elsewhere.test", server.addr[1]).close
          p $asked, Addrinfo.getaddrinfo("elsewhere.test", 80).map(&:ip_address)
          Socket.tcp("nowhere.test", 80) rescue p $!
        end
      end.join
    RUBY
    assert_equal %("elsewhere.test"\n["127.0.0.1"]\n#<SocketError: replaced>\n), child_says(code)
  end

  # A method that is replaced is left alone, the others of its class are not; nor is one that a prepended module wraps. (To Ruby's
  # own method a scheduler can give hosts only, no services.)
  def test_a_method_that_a_program_has_changed_before_keeps_no_other_from_services
    changes = {
      "alias" => "class << Addrinfo; alias other udp; def udp(...) = other(...); end",
      "prepend" => "Addrinfo.singleton_class.prepend(Module.new { def tcp(...) = super; def getaddrinfo(...) = super })"
    }
    changes.each do |name, change|
      assert_equal "80\n80\n", child_says(<<~RUBY), name
        require "socket"
        #{change}
        Reactor.run do
          p Addrinfo.tcp("127.0.0.1", "http").ip_port, Addrinfo.getaddrinfo("localhost", "http", nil, :STREAM).first.ip_port
        end
      RUBY
    end
  end

  def test_virtual_time_does_not_advance_during_name_resolution
    out = child_says(<<~RUBY)
      require "reactor/testing"
      server = TCPServer.new("127.0.0.1", 0)
      Reactor::Testing.virtual_time(settle: 0) do |clock|
        20.times { Timeout.timeout(0.0001) { IPSocket.getaddress("localhost") } }
        p clock.elapsed
      end
    RUBY
    assert_equal "0.0\n", out
  end

  # --- with a nameserver of our own ------------------------------------------------------------------------------

  # Twenty lookups that are answered once sixteen queries were sent. Every backend runs sixteen at a time. Another fiber counts
  # them.
  def test_sixteen_unanswered_names_do_not_block_other_fibers
    said = in_namespaces(<<~RUBY)
      ways = [
        ->(name) { TCPSocket.new(name, PORT).close }, ->(name) { Socket.tcp(name, PORT).close }, ->(name) { Addrinfo.tcp(name, PORT) },
        ->(name) { Addrinfo.getaddrinfo(name, "http", nil, :STREAM) }, ->(name) { IPSocket.getaddress(name) }, ->(name) { Socket.getaddrinfo(name, 80) },
        ->(name) { Socket.sockaddr_in(80, name) }, ->(name) { UDPSocket.open { |s| s.connect(name, 9) } }, ->(name) { TCPServer.new(name, 0).close },
        ->(name) { UDPSocket.open { |s| s.send("x", 0, name, 9) } }
      ]
      open = 20
      scheduled do
        20.times { |i| Fiber.schedule { ways[i % 10].call("slow\#{i}.slow.test"); open -= 1 } }
        asked = []
        asked |= [ASKED.gets] until asked.size == 16
        p open
        RELEASE.close
      end
      p open
    RUBY
    assert_equal [20, 0], said
  end

  # More names than there are threads and places in their queue wait for answers that do not come.
  def test_names_in_etc_hosts_do_not_wait_behind_unanswered_ones
    said = in_namespaces(<<~RUBY)
      scheduled do
        1200.times { |i| Fiber.schedule { Addrinfo.tcp("slow\#{i}.slow.test", 80) } }
        p TCPSocket.open("localhost", PORT) { :connected }, Addrinfo.tcp("LOCAL.test", 80).ip_address, Addrinfo.ip("local.test").ip_address
        p Addrinfo.getaddrinfo("localhost", 80, :INET6, :STREAM).map(&:ip_address), Socket.tcp("localhost", PORT) { :connected }
        $stdout.flush
        exit! 0 # does not wait for the threads of the pool
      end
    RUBY
    assert_equal [:connected, "127.0.0.7", "127.0.0.7", ["::1"], :connected], said
  end

  # An interrupted fiber and the whole scheduler end immediately. The resolver's own time limit exceeds the limit of this
  # child process.
  def test_a_lookup_without_an_answer_is_interrupted_immediately
    said = in_namespaces(<<~RUBY)
      ways = [
        ->(name) { TCPSocket.new(name, PORT).close }, ->(name) { Socket.tcp(name, PORT).close }, ->(name) { Addrinfo.tcp(name, PORT) },
        ->(name) { Addrinfo.udp(name, PORT) }
      ]
      results = []
      scheduled do
        left = ways.product([nil, ThreadError]).map do |way, error|
          Fiber.schedule { results << (Timeout.timeout(0.1, error) { way.call("never.test") } rescue $!.class) }
        end
        sleep 0.01 while left.any?(&:alive?)
        TCPSocket.new("quick.test", PORT).close
        results << :quick
      end
      p results.tally
      exit! 0 # does not wait for the threads of the pool
    RUBY
    assert_equal [{ Timeout::Error => 4, ThreadError => 4, :quick => 1 }], said
  end

  # Requesting it again would block the other fibers.
  def test_a_datagram_to_a_name_that_fails_asks_as_often_as_plain_ruby
    plain, own = in_namespaces(<<~RUBY)
      RELEASE.close
      asks = lambda do
        error, = told { UDPSocket.open { |socket| socket.send("x", 0, "gone.test", 9) } }
        [error.name, ASKED.read_nonblock(1000).lines]
      end
      p asks.call, scheduled(&asks)
    RUBY
    assert_equal plain, own
    assert_equal "Socket::ResolutionError", own.first
  end

  # The time limit of the resolver is one second.
  def test_a_lookup_without_an_answer_raises_as_in_plain_ruby
    said = in_namespaces(<<~RUBY, resolver_options: "timeout:1 attempts:1")
      once = -> { told { Addrinfo.tcp("never.test", 1) } }
      p once.call, scheduled(&once)
    RUBY
    assert_equal [Socket::ResolutionError, said.first], [said.first.first, said.last]
  end

  def test_answers_of_a_nameserver_give_the_results_of_plain_ruby
    said = in_namespaces(<<~RUBY)
      questions = %w[quick many sixonly nothing empty failing alias local].flat_map do |name|
        host = "\#{name}.test"
        [
          -> { Addrinfo.getaddrinfo(host, 80).map(&:inspect) }, -> { Addrinfo.getaddrinfo(host, 80, :INET6, :STREAM).map(&:inspect) },
          -> { Addrinfo.getaddrinfo(host, 80, :INET, :STREAM).map(&:inspect) }, -> { Addrinfo.getaddrinfo(host, "http").map(&:inspect) },
          -> { Addrinfo.getaddrinfo(host, nil, nil, :STREAM, nil, Socket::AI_CANONNAME).map(&:canonname) },
          -> { Addrinfo.getaddrinfo(host, nil, :INET6, :STREAM, nil, Socket::AI_V4MAPPED).map(&:inspect) },
          -> { Addrinfo.getaddrinfo(host, nil, :INET6, :STREAM, nil, Socket::AI_V4MAPPED | Socket::AI_ALL).map(&:inspect).sort },
          -> { Socket.getaddrinfo(host, 80) }, -> { IPSocket.getaddress(host) }, -> { Socket.sockaddr_in("https", host) },
          -> { TCPSocket.open(host, 1) { nil } }, -> { Socket.tcp(host, 1) { nil } }, -> { Socket.tcp(host, 1, fast_fallback: false) { nil } },
          -> { TCPSocket.open(host, PORT) { |s| s.peeraddr } }, -> { Socket.tcp(host, PORT) { |s| s.remote_address.inspect } },
          -> { UDPSocket.open { |s| s.connect(host, 9); s.peeraddr } }, -> { UDPSocket.open(Socket::AF_INET6) { |s| s.connect(host, 9); s.peeraddr } },
          -> { TCPServer.open(host, 0) { |s| s.addr.values_at(0, 2, 3) } }
        ]
      end
      questions << -> { Addrinfo.getaddrinfo("1.2.3.400", 80) }
      # /etc/hosts has it for ::1 as well: getaddrinfo(3) then returns 127.0.0.1 twice.
      questions << -> { Addrinfo.getaddrinfo("localhost", 80, :INET, :STREAM).map(&:ip_address) }
      ask = ->(which) { which.map { |question| told(&question) } }
      plain = ask.(questions)
      ours = scheduled { ask.(questions) }
      p plain.size, plain.count { |kind, *| kind == :value }.positive?
      # If several addresses answer, the connection uses the first one, and IPv6 has a start of a few milliseconds.
      # So the comparison is repeated when the results differ.
      4.times do
        different = questions.each_index.select { |i| plain[i] != ours[i] }
        plain_again = ask.(questions.values_at(*different))
        ours_again = scheduled { ask.(questions.values_at(*different)) }
        different.each_with_index { |i, n| plain[i], ours[i] = plain_again[n], ours_again[n] }
      end
      plain.zip(ours).each_with_index { |(one, other), i| p [i, one, other] unless one == other }
    RUBY
    assert_equal [146, true], said.first(2)
    # If several addresses fail, Ruby's Happy Eyeballs raises the last error.
    assert_empty said.drop(2).reject { |_, plain, ours| plain.first(2) == ours.first(2) && plain.first == Errno::ECONNREFUSED }
  end

  # RFC 8305: an address that does not answer, and a nameserver that does not answer for IPv6. A client that waited for
  # either would exceed the limit of this child process.
  def test_happy_eyeballs_connects_past_a_silent_address_or_nameserver
    skip "Ruby #{RUBY_VERSION} has no Happy Eyeballs" unless Socket.respond_to?(:tcp_fast_fallback)
    said = in_namespaces(<<~RUBY)
      deaf = TCPServer.new("127.0.0.2", PORT)
      deaf.listen(0)
      _crowd = Array.new(4) { Socket.new(:INET, :STREAM).tap { |s| s.connect_nonblock(Socket.sockaddr_in(PORT, "127.0.0.2"), exception: false) } }
      scheduled do
        ["hanging.test", "sixless.test"].each do |host|
          p TCPSocket.open(host, PORT) { |s| s.peeraddr[3] }, Socket.tcp(host, PORT) { |s| s.remote_address.ip_address }
        end
      end
      late = [
        -> { TCPSocket.new("deaf.test", PORT, connect_timeout: 0.1) }, -> { Socket.tcp("deaf.test", PORT, connect_timeout: 0.1) },
        -> { TCPSocket.new("never.test", PORT, resolv_timeout: 0.1) }, -> { Socket.tcp("never.test", PORT, resolv_timeout: 0.1) }
      ]
      late.push(-> { TCPSocket.new("deaf.test", PORT, open_timeout: 0.1) }, -> { Socket.tcp("never.test", PORT, open_timeout: 0.1) }) if Reactor.const_get(:HappyEyeballs).options?({ open_timeout: 1 })
      late.each { |way| p scheduled { told(&way) }.first }
      exit! 0
    RUBY
    late = Reactor.const_get(:SocketArguments).timeout_error("x").class
    assert_equal ["127.0.0.1"] * 4, said.first(4)
    assert_operator said.size, :>=, 8
    said.drop(4).each { |error| assert_includes [late, Errno::ETIMEDOUT, IO::TimeoutError], error }
  end

  def test_one_address_is_tried_after_the_other_as_in_plain_ruby
    said = in_namespaces(<<~RUBY)
      deaf = TCPServer.new("127.0.0.2", PORT)
      deaf.listen(0)
      _crowd = Array.new(4) { Socket.new(:INET, :STREAM).tap { |s| s.connect_nonblock(Socket.sockaddr_in(PORT, "127.0.0.2"), exception: false) } }
      options = Socket.respond_to?(:tcp_fast_fallback) ? { fast_fallback: false } : {}
      %w[hanging.test deaf.test many.test].each do |host|
        way = -> { told { TCPSocket.open(host, PORT, connect_timeout: 0.1, **options) { |s| s.peeraddr[3] } } }
        p [host, way.call, scheduled(&way)]
      end
      exit! 0
    RUBY
    assert_equal 3, said.size
    # Compares only the classes of errors.
    said.each { |host, *both| assert_equal(*both.map { |kind, value| kind == :value ? value : kind }, host) }
  end

  def answer(&question)
    result = instance_exec(&question)
    Array(result).map { |part| part.is_a?(Addrinfo) ? described(part) : part }
  rescue SystemCallError, SocketError, ArgumentError, TypeError, IO::TimeoutError => error
    [error.class, error.message]
  end

  # The output of the code in a child process with its own /etc/hosts, resolv.conf, network and nameserver. The resolver
  # waits for an answer longer than the tests wait for the child.
  def in_namespaces(code, resolver_options: "timeout:30 attempts:5")
    skip "namespaces need Linux, root, unshare and mount" unless linux? && Process.uid.zero? && system("unshare", "-mn", "true", err: File::NULL)
    Dir.mktmpdir do |place|
      files = { "resolv.conf" => "nameserver 127.0.0.1\noptions #{resolver_options}\n", "nsswitch.conf" => "hosts: files dns\nservices: files\n", "hosts" => HOSTS }
      files.each { |name, text| File.write(File.join(place, name), text) }
      File.write(File.join(place, "code.rb"), WORLD + code)
      mounts = files.keys.map { |name| "mount --bind #{place}/#{name} /etc/#{name}" }
      inner = [RbConfig.ruby, "-w", "-I", LIB, "-I", __dir__, "-r", "reactor", File.join(place, "code.rb")]
      child_says("exec('unshare', '-mn', 'sh', '-c', ARGV.shift, *ARGV)", "#{mounts.join(" && ")} && exec \"$0\" \"$@\"", *inner).lines.map { |line| eval(line) } # rubocop:disable Security/Eval -- output of our own child
    end
  end

  HOSTS = "127.0.0.1 localhost\n::1 localhost\n127.0.0.7 local.test\n"

  WORLD = <<~RUBY
    require "nameserver"
    require "timeout"
    ASKED, RELEASE = Nameserver.run(
      "quick.test" => { 1 => ["127.0.0.1"], 28 => ["::1"] }, "many.test" => { 1 => %w[127.0.0.3 127.0.0.1 127.0.0.4] }, "sixonly.test" => { 28 => ["::1"] },
      "*.slow.test" => { 1 => ["127.0.0.1"], 28 => ["::1"], held: true }, "never.test" => { mute: true }, "gone.test" => { rcode: 3, held: true }, "sixless.test" => { 1 => ["127.0.0.1"], mute: 28 },
      "empty.test" => {}, "failing.test" => { rcode: 2 }, "alias.test" => { alias: "many.test" }, "hanging.test" => { 1 => %w[127.0.0.2 127.0.0.1] },
      "deaf.test" => { 1 => ["127.0.0.2"] }
    )
    servers = ["127.0.0.1", "::1"].map { |host| TCPServer.new(host, 7001) }
    PORT = 7001
    Thread.new { loop { IO.select(servers)[0].each { |server| server.accept_nonblock(exception: false) } } }
    def scheduled(&block)
      Thread.new do
        result = nil
        Fiber.set_scheduler(Reactor::Scheduler.new)
        Fiber.schedule { result = block.call }
        Fiber.scheduler.run
        result
      end.value
    end
    def told
      [:value, yield]
    rescue SystemCallError, SocketError, IO::TimeoutError, ArgumentError => error
      [error.class, error.message]
    end
  RUBY
  private_constant :HOSTS, :WORLD

  # The port of a server that greets one client after the other.
  def greeter
    server = track(TCPServer.new("127.0.0.1", 0))
    @greeter = Thread.new do
      loop do
        socket = server.accept
        socket.write("hello\n")
        socket.close_write
        socket.read
      rescue SystemCallError
        nil
      ensure
        socket&.close
      end
    end
    server.addr[1]
  end

  def teardown
    @greeter&.kill&.join
    super
  end

  def described(address) = [address.inspect, address.canonname, address.protocol, address.pfamily, address.socktype]

  def udp(family = Socket::AF_INET)
    socket = UDPSocket.new(family)
    yield socket
  ensure
    socket.close
  end
end
