# frozen_string_literal: true

require "socket"

# A nameserver for a test process that runs as root in fresh mount and network namespaces. The namespace has the loopback
# interface only. The nameserver answers immediately, after a release, or never.
#
#   asked, release = Nameserver.run("quick.test" => { 1 => ["127.0.0.1"] }, "slow.test" => { 1 => ["127.0.0.2"], held: true })
#   asked.gets    # => "slow.test\n", after a query for it
#   release.close # the query is answered
#
# A name has addresses by type (1: A, 28: AAAA), an alias, or an rcode. If it is `held`, queries are answered after the release.
# Query types in `mute` (true: all types) are never answered. "*" stands for any first label. Unknown names get NXDOMAIN.
module Nameserver
  PORT = 53
  A = 1
  CNAME = 5
  AAAA = 28

  module_function

  # Starts the nameserver in a child process, which ends with this one.
  #
  # @return [Array(IO, IO)] the first has a line for each query of a held name; closing the second releases those queries
  def run(names)
    raise_loopback
    asked, asks = IO.pipe
    released, release = IO.pipe
    socket = UDPSocket.new
    socket.bind("127.0.0.1", PORT)
    parent = Process.pid
    pid = fork do
      [asked, release].each(&:close)
      asks.sync = true
      gate = Thread::Queue.new
      Thread.new { sleep 0.1 while Process.ppid == parent; exit! }
      Thread.new { released.read; gate.close }
      held = lambda do |name|
        asks.puts(name)
        gate.pop
      rescue Errno::EPIPE
        nil # the test has ended
      end
      loop do
        query, from = socket.recvfrom(512)
        Thread.new { answer(socket, names, query, from, held) }
      end
    end
    Process.detach(pid)
    [socket, asks, released].each(&:close)
    [asked, release]
  end

  # ioctl(2) SIOCSIFFLAGS with IFF_UP.
  def raise_loopback = UDPSocket.open { |socket| socket.ioctl(0x8914, ["lo", 1].pack("a16sx22")) }

  def answer(socket, names, query, from, held)
    name, type = question(query)
    told = names.fetch(name) { names[name.sub(/\A[^.]*/, "*")] } || { rcode: 3 }
    return if told[:mute] == true || Array(told[:mute]).include?(type)

    held.call(name) if told[:held]
    records = told[:alias] ? [[CNAME, wire(told[:alias])]] : []
    target = told[:alias] ? names.fetch(told[:alias]) : told
    records += target.fetch(type, []).map { |address| [type, Addrinfo.ip(address).then { |ip| ip.to_sockaddr[ip.ipv4? ? 4..7 : 8..23] }] }
    owner = told[:alias] && wire(told[:alias])
    body = records.map { |kind, data| (kind == type && owner || "\xC0\x0C".b) + [kind, 1, 0, data.bytesize].pack("nnNn") + data }
    head = query[0, 2] + [0x8180 | told.fetch(:rcode, 0), 1, body.size, 0, 0].pack("n5")
    socket.send(head + query[12, question_size(query)] + body.join, 0, from[3], from[1])
  end

  def question(query)
    labels = []
    place = 12
    until (size = query.getbyte(place)).zero?
      labels << query[place + 1, size]
      place += size + 1
    end
    [labels.join(".").downcase, query[place + 1, 2].unpack1("n")]
  end

  def question_size(query) = query.index("\0".b, 12) + 5 - 12

  def wire(name) = name.split(".").map { |label| [label.bytesize].pack("C") + label.b }.join + "\0".b
end
