# frozen_string_literal: true

require "logger"
require "net/http"
require "openssl"
require "reactor/rack"
require "reactor/testing"
require "stringio"

# Real code under faults: each program is given the world, and raises if a promise is broken.
module Programs
  ERRORS = [SystemCallError, Timeout::Error, EOFError, IOError, OpenSSL::SSL::SSLError].freeze
  # RSA, because the signatures of other keys have not one length.
  KEY = OpenSSL::PKey::RSA.new(2048)
  CERTIFICATE = OpenSSL::X509::Certificate.new.tap do |certificate|
    certificate.version, certificate.serial = 2, 1
    certificate.subject = certificate.issuer = OpenSSL::X509::Name.parse("/CN=tls")
    certificate.public_key = KEY
    certificate.not_before, certificate.not_after = Time.utc(2000), Time.utc(2049)
    certificate.sign(KEY, OpenSSL::Digest.new("SHA256"))
  end

  module_function

  def retrying(times = 8)
    attempts ||= 0
    yield
  rescue *ERRORS
    raise if (attempts += 1) > times

    sleep 2**attempts
    retry
  end

  def faults(world) = world.link(latency: 0.0005..0.05, drop: 0.02, reset: 0.005, split: 0.05)

  # A Rack application that echoes, asked by Net::HTTP with keep-alive.
  def rack(world, clients: 4)
    faults(world)
    world.host("rack") do
      app = ->(env) { env["rack.input"].read.then { |body| [200, { "content-length" => body.bytesize.to_s }, [body]] } }
      Reactor::Rack.new(app, logger: Logger.new(StringIO.new)).serve(TCPServer.new("rack", 80))
      sleep
    end
    clients.times { |i| world.client("browser #{i}") { retrying { browse(i) } } }
    world.at(2) { world.partition("browser 0", "rack") }
    world.at(20) { world.heal }
  end

  def browse(number)
    Net::HTTP.start("rack", 80, open_timeout: 5, read_timeout: 5) do |http|
      4.times do |i|
        body = "#{number} #{i} " * rand(1..2000)
        raise "another answer" unless http.post("/", body, "content-type" => "text/plain").body == body

        sleep rand
      end
    end
  end

  # A server stops while requests come: those that it has read are answered.
  def stop_under_a_flood(world)
    world.link(latency: 0.0005..0.05, split: 0.05)
    read, answered = [], []
    world.host("server") do
      server = Reactor::Server.new(TCPServer.new("server", 80), linger: 0.1) do |socket|
        line = socket.gets
        next socket.close unless line

        read << line
        sleep rand(0.0..0.1)
        socket.write(line)
        :keep
      end
      server.start
      sleep rand(0.5..1.5)
      raise "cut" unless server.stop(60).zero?

      world.log("stopped")
    end
    8.times do |i|
      world.client("client #{i}") do
        10.times do |j|
          socket = TCPSocket.new("server", 80)
          2.times do |k|
            socket.puts("#{i} #{j} #{k}")
            line = socket.gets or break
            answered << line
          end
        rescue Errno::ECONNRESET, Errno::EPIPE
          nil
        rescue Errno::ECONNREFUSED
          break
        ensure
          socket&.close
        end
      end
    end
    world.check { raise "read and not answered: #{(read - answered).inspect}" unless read.sort == answered.sort }
  end

  # TLS between two hosts.
  def tls(world)
    faults(world)
    world.host("tls") do
      context = OpenSSL::SSL::SSLContext.new
      context.cert, context.key = CERTIFICATE, KEY
      listener = TCPServer.new("tls", 443)
      loop do
        Fiber.schedule(listener.accept) do |socket|
          tls = OpenSSL::SSL::SSLSocket.new(socket, context)
          tls.accept
          while (line = tls.gets)
            tls.write(line)
          end
        rescue *ERRORS
          nil
        ensure
          socket.close
        end
      end
    end
    world.client("teller") { retrying { tell } }
  end

  def tell
    socket = TCPSocket.new("tls", 443)
    context = OpenSSL::SSL::SSLContext.new
    context.cert_store = OpenSSL::X509::Store.new.add_cert(CERTIFICATE)
    context.verify_mode = OpenSSL::SSL::VERIFY_PEER
    tls = OpenSSL::SSL::SSLSocket.new(socket, context)
    tls.hostname = "tls"
    Timeout.timeout(10) do
      tls.connect
      3.times do |i|
        tls.puts("#{i} #{"x" * 5_000}")
        raise EOFError unless tls.gets.to_s.start_with?("#{i} ")
      end
    end
  ensure
    socket&.close
  end

  # Twenty hosts: HTTP with retries, TLS, and a group with timeouts.
  def wide(world)
    rack(world, clients: 15)
    tls(world)
    world.host("slow") do
      listener = TCPServer.new("slow", 80)
      loop { Fiber.schedule(listener.accept) { |socket| sleep rand; socket.close } }
    end
    world.client("group") do
      Reactor.group do |group|
        5.times { group.async { retrying { Timeout.timeout(0.8) { TCPSocket.open("slow", 80, &:read) } } } }
      end
    end
  end

  # The driver in Ruby of the redis gem, against a server of a few lines.
  def redis(world)
    require "redis"
    faults(world)
    world.host("redis") do
      values = {}
      listener = TCPServer.new("redis", 6379)
      loop { Fiber.schedule(listener.accept) { |socket| serve_redis(socket, values) } }
    end
    3.times do |i|
      world.client("app #{i}") do
        redis = Redis.new(host: "redis", port: 6379, driver: :ruby, protocol: 2, timeout: 2, reconnect_attempts: 3)
        5.times do |j|
          retrying { redis.set("key #{i}", "value #{j}") }
          raise "another value" unless retrying { redis.get("key #{i}") } == "value #{j}"

          sleep rand
        end
        redis.close
      end
    end
  end

  def serve_redis(socket, values)
    while (head = socket.gets)
      words = Array.new(head[1..].to_i) { socket.read(socket.gets[1..].to_i + 2)[..-3] }
      case words.first.upcase
      when "SET" then values[words[1]] = words[2]
      when "GET" then value = values[words[1]]
      end
      socket.write(value ? "$#{value.bytesize}\r\n#{value}\r\n" : "+OK\r\n")
      value = nil
    end
  rescue *ERRORS, NoMethodError
    nil # the other side has gone, in the middle of a command
  ensure
    socket.close
  end

  ALL = %i[rack stop_under_a_flood tls redis wide].freeze
end
