# frozen_string_literal: true

require "socket"
require_relative "../ruby/time_limit"

# A proxy between a client library and a real server. A request that has the word in it is held at the gate until `count` of them have
# arrived. So no operation ends before all have begun, and no clock decides whether they overlap. If no further request comes and all
# processes are idle, the client waits in one operation before it begins the next one: then they pass one by one.
class Gate
  WORD = "rendezvous"
  # Seconds without an arrival after which idle clients have no further request to send.
  PATIENCE = 5

  # The most requests that were held at the same time.
  attr_reader :overlap

  attr_reader :port

  # @param upstream [Integer] the server's port
  # @param count [Integer]
  def initialize(upstream, count)
    @upstream, @count = upstream, count
    @server = TCPServer.new("127.0.0.1", 0)
    @port = @server.addr[1]
    @lock, @changed = Thread::Mutex.new, Thread::ConditionVariable.new
    @arrived = @held = @overlap = 0
    @open = false
    @threads = Thread::Queue.new
    @threads << Thread.new { loop { accept(@server.accept) } }
    @threads << Thread.new { open_when_idle }
  end

  def close
    @threads.pop.kill.join until @threads.empty?
    @server.close
  end

  private

  def accept(client)
    @threads << Thread.new do
      server = TCPSocket.new("127.0.0.1", @upstream)
      @threads << (answers = Thread.new { forward(server, client) { nil } })
      forward(client, server) { |bytes| hold if bytes.include?(WORD) }
      answers.join
    rescue SystemCallError
      nil # the client sees the end
    ensure
      client.close
      server&.close
    end
  end

  def forward(from, to)
    loop do
      bytes = from.readpartial(65_536)
      yield bytes
      to.write(bytes)
    end
  rescue EOFError, SystemCallError, IOError
    begin
      to.close_write
    rescue SystemCallError, IOError
      nil # the other direction has ended as well
    end
  end

  def hold
    @lock.synchronize do
      @arrived += 1
      @overlap = [@overlap, @held += 1].max
      @open = true if @arrived == @count
      @changed.broadcast
      @changed.wait(@lock) until @open
      @held -= 1
    end
  end

  def open_when_idle
    @lock.synchronize { @changed.wait(@lock) while @arrived.zero? }
    until @open
      seen = @arrived
      limit = TimeLimit.new(PATIENCE)
      sleep 0.05 until @open || seen != @arrived || limit.over?
      @lock.synchronize { @open = true; @changed.broadcast } if seen == @arrived
    end
  end
end
