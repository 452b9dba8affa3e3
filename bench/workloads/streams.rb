# frozen_string_literal: true

# Many bytes, many connections.
module Bench
  Workload.define(
    "transfer", title: "Answers of 64 KiB and 1 MiB", unit: "MiB/s", value: :mebibytes, operations: 512, least: 8, baseline: true,
    points: [64 << 10, 1 << 20], axis: "bytes per answer",
    about: "8 clients ask over TCP with one byte and read the whole answer, all ends in one scheduler; as many bytes at each size"
  ) do |run|
    body = ("x" * run.point).b.freeze
    clients = run.clients(8) { |server| server.write(body) while server.readpartial(1) }
    # The number of operations is of answers of 1 MiB.
    answers = run.operations * ((1 << 20) / run.point)
    run.share_measured(clients, answers) do |client, part|
      part.times do
        client.write("?")
        run.check(client.read(body.bytesize).bytesize, body.bytesize, "bytes of an answer")
      end
    end
    run.report(mebibytes: answers * run.point / run[:seconds] / (1 << 20))
  end

  Workload.define(
    "mixed", title: "Both directions of one socket", unit: "MiB/s", value: :mebibytes, operations: 40_000, least: 2, baseline: true,
    about: "one UNIX socket pair with a reader and a writer task at each end, all four at once, messages of 4 KiB"
  ) do |run|
    chunk = ("x" * 4096).b.freeze
    ends = UNIXSocket.pair
    run.measure do |count|
      run.together(4) do |index|
        socket = ends[index / 2]
        if index.even?
          count.times { socket.write(chunk) }
        else
          left = count * chunk.bytesize
          left -= socket.readpartial(16_384).bytesize while left.positive?
          run.check(left, 0, "bytes still to come")
        end
      end
    end
    run.report(mebibytes: 2 * run.operations * chunk.bytesize / run[:seconds] / (1 << 20))
  end

  Workload.define(
    "accept_storm", title: "Accept storm", unit: "connections/s", operations: 12_000, least: 200, baseline: true,
    about: "200 clients at once connect over TCP, get one byte, close, and connect again; clients and server in one scheduler"
  ) do |run|
    listener = run.listener
    port = listener.local_address.ip_port
    served = 0
    serve = lambda do |connection|
      connection.write("!")
      run.check(connection.read, "", "what a client sent")
      connection.close
      served += 1
    end
    run.spawn { loop { listener.accept.then { |connection| run.spawn { serve.call(connection) } } } }
    run.measure do |count|
      earlier = served
      run.share(count, 200) do |_, part|
        part.times do
          client = TCPSocket.new("127.0.0.1", port)
          run.check(client.readpartial(1), "!", "the server's byte")
          client.close
        end
      end
      sleep 0.001 until served == earlier + count
    end
  end
end
