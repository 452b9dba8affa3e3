# frozen_string_literal: true

# Small messages there and back.
require "socket"

module Bench
  # Client and server halves of a ping, over any two ends.
  module Ping
    module_function

    # Answers what comes with the same, until the other end closes.
    def answer(reader, writer, size)
      while true
        writer.write(reader.readpartial(size))
      end
    rescue EOFError
      writer.close
    end

    # Sends a message and waits for its answer, count times.
    def exchange(reader, writer, message, count)
      size = message.bytesize
      count.times do
        writer.write(message)
        got = reader.readpartial(size)
        raise "wrong result: #{got.bytesize} bytes came back instead of #{size}" unless got.bytesize == size
      end
    end

    # The same calls by one task, in an order in which it never has to wait: what Ruby and the kernel take for them.
    def alone(run, pairs, message)
      run.measure do |count|
        (0...count).step(pairs.size) do |from|
          turn = pairs.first(count - from)
          turn.each { |(_, writer), _| writer.write(message) }
          turn.each { |_, (reader, writer)| writer.write(reader.readpartial(message.bytesize)) }
          turn.each { |(reader, _), _| run.check(reader.readpartial(message.bytesize), message, "the answer") }
        end
      end
    end

    # Two ends, joined by a pipe each way.
    def pipes
      near, to_near = IO.pipe
      far, to_far = IO.pipe
      [to_near, to_far].each { |writer| writer.sync = true }
      [[near, to_far], [far, to_near]]
    end

    # One measured ping between two tasks.
    def measure(run, near, far, message)
      run.spawn { answer(*far, message.bytesize) }
      run.measure { |count| exchange(*near, message, count) }
    end
  end

  Workload.define(
    "tcp_echo", title: "TCP echo, 20 clients", unit: "round trips/s", operations: 60_000, least: 20, baseline: true,
    plain: lambda do |run|
      listener = run.listener
      Ping.alone(run, Array.new(20) { run.tcp_pair(listener).map { |socket| [socket, socket] } }, "x" * 512)
    end,
    about: "20 clients and their server in one scheduler, 512-byte messages over loopback TCP, each waiting for its answer"
  ) do |run|
    message = "x" * 512
    clients = run.clients(20) { |server| Ping.answer(server, server, message.bytesize) }
    run.share_measured(clients) { |client, part| Ping.exchange(client, client, message, part) }
  end

  Workload.define(
    "unix_ping", title: "Ping over a UNIX socket pair", unit: "round trips/s", operations: 80_000, baseline: true,
    plain: ->(run) { Ping.alone(run, [UNIXSocket.pair.map { |socket| [socket, socket] }], "x") },
    about: "two tasks, one byte there and back over a UNIX stream socket pair"
  ) do |run|
    left, right = UNIXSocket.pair
    Ping.measure(run, [left, left], [right, right], "x")
  end

  Workload.define(
    "pipe_ping", title: "Ping over two pipes", unit: "round trips/s", operations: 80_000, baseline: true,
    plain: ->(run) { Ping.alone(run, [Ping.pipes], "x") },
    about: "two tasks, one byte there through one pipe and back through another"
  ) do |run|
    Ping.measure(run, *Ping.pipes, "x")
  end

  Workload.define(
    "racket", title: "TCP ping beside N parked", unit: "s", better: :less, operations: 10_000, baseline: true,
    value: ->(sample) { sample[:seconds] / sample[:operations] * 10_000 },
    points: [100, 1_000, 10_000], axis: "tasks parked on UDP sockets",
    about: "seconds for 10,000 one-byte TCP round trips between two tasks, beside N tasks each waiting on a UDP socket: should not depend on N. " \
           "Plain Ruby: round trips without a wait, beside N suspended fibers",
    plain: lambda do |run|
      @fibers = Array.new(run.point) { Fiber.new { Fiber.yield }.tap(&:resume) }
      Ping.alone(run, [run.tcp_pair(run.listener).map { |socket| [socket, socket] }], "x")
    end
  ) do |run|
    Bench.udp_sockets(run.point).each { |socket| run.spawn { raise "unexpected: #{socket.recvfrom(1)}" } }
    near, far = run.tcp_pair(run.listener)
    Ping.measure(run, [near, near], [far, far], "x")
  end

  Workload.define(
    "udp", title: "UDP ping, 20 pairs", unit: "round trips/s", operations: 60_000, least: 20, baseline: true,
    about: "20 pairs of connected UDP sockets in one scheduler, 64-byte datagrams there and back"
  ) do |run|
    message = "x" * 64
    sockets = Array.new(20) do
      near, far = Array.new(2) { UDPSocket.new.tap { |socket| socket.bind("127.0.0.1", 0) } }
      near.connect("127.0.0.1", far.local_address.ip_port)
      far.connect("127.0.0.1", near.local_address.ip_port)
      run.spawn { far.send(far.recv(message.bytesize), 0) while true }
      near
    end
    run.share_measured(sockets) do |socket, part|
      part.times do
        socket.send(message, 0)
        run.check(socket.recv(message.bytesize).bytesize, message.bytesize, "bytes of a datagram")
      end
    end
  end

  Workload.define(
    "lines", title: "Line protocol, 20 clients", unit: "lines/s", operations: 60_000, least: 20, baseline: true,
    about: "20 clients send a line of 32 bytes with puts over TCP; the server reads it with gets and answers with a line, in one scheduler"
  ) do |run|
    line = "#{'x' * 31}\n"
    clients = run.clients(20) do |server|
      while (request = server.gets)
        server.puts(request)
      end
    end
    run.share_measured(clients) do |client, part|
      part.times do
        client.puts(line)
        run.check(client.gets, line, "the line that came back")
      end
    end
  end

  Workload.define(
    "tls_echo", title: "TLS echo, 20 clients", unit: "round trips/s", operations: 20_000, least: 20,
    about: "20 clients and their server in one scheduler, 512-byte messages over TLS (Ruby's openssl, one handshake per client before)"
  ) do |run|
    require "openssl"
    message = "x" * 512
    context = TLS.server
    sockets = run.clients(20) do |socket|
      server = OpenSSL::SSL::SSLSocket.new(socket, context).accept
      while true
        server.syswrite(server.sysread(message.bytesize))
      end
    end
    clients = sockets.map { |socket| OpenSSL::SSL::SSLSocket.new(socket, OpenSSL::SSL::SSLContext.new).connect }
    run.share_measured(clients) do |client, part|
      part.times do
        client.syswrite(message)
        run.check(client.sysread(message.bytesize).bytesize, message.bytesize, "bytes that came back")
      end
    end
  end

  # A server's context with a certificate of its own making.
  module TLS
    def self.server
      key = OpenSSL::PKey::EC.generate("prime256v1")
      certificate = OpenSSL::X509::Certificate.new
      certificate.version = 2
      certificate.serial = 1
      certificate.subject = certificate.issuer = OpenSSL::X509::Name.parse("/CN=localhost")
      certificate.public_key = key
      certificate.not_before = Time.now - 60
      certificate.not_after = Time.now + 3600
      certificate.sign(key, OpenSSL::Digest.new("SHA256"))
      OpenSSL::SSL::SSLContext.new.tap do |context|
        context.cert = certificate
        context.key = key
      end
    end
  end
end
