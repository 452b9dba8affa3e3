# frozen_string_literal: true

require "socket"

# A world of its own for a test of names: run as root in fresh mount and network namespaces, where nothing is but the
# loopback interface, and a nameserver that answers as it is told, late, or never.
#
#   Nameserver.run("quick.test" => { 1 => ["127.0.0.1"] }, "late.test" => { delay: 0.5 })
#
# A name has addresses by type (1: A, 28: AAAA), an alias, a delay in seconds (by type, or for all), an rcode; one whose
# delay is nil is never answered. "*" stands for whatever has been told first. Unknown names do not exist.
module Nameserver
  PORT = 53
  A = 1
  CNAME = 5
  AAAA = 28

  module_function

  # Starts it in a process of its own, which ends with this one.
  def run(names)
    raise_loopback
    socket = UDPSocket.new
    socket.bind("127.0.0.1", PORT)
    parent = Process.pid
    pid = fork do
      Thread.new { sleep 0.1 while Process.ppid == parent; exit! }
      loop do
        query, from = socket.recvfrom(512)
        Thread.new { answer(socket, names, query, from) }
      end
    end
    Process.detach(pid)
    socket.close
  end

  # ioctl(2) SIOCSIFFLAGS with IFF_UP.
  def raise_loopback = UDPSocket.open { |socket| socket.ioctl(0x8914, ["lo", 1].pack("a16sx22")) }

  def answer(socket, names, query, from)
    name, type = question(query)
    told = names.fetch(name) { names[name.sub(/\A[^.]*/, "*")] } || { rcode: 3 }
    delay = told.fetch(:delay, 0)
    delay = delay.fetch(type, 0) if delay.is_a?(Hash)
    return unless delay

    sleep delay
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
