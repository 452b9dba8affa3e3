# frozen_string_literal: true

module Fuzz
  # What programs wait for: descriptors, locks that another task holds, children. All of it is closed at the end.
  module Props
    # @return [Array<IO>] the same
    def own(*ios) = ios.each { |io| @ios << io; io.sync = true }

    def tcp_pair
      server = TCPServer.new("127.0.0.1", 0)
      client = TCPSocket.new("127.0.0.1", server.local_address.ip_port)
      own(server.accept, client)
    ensure
      server&.close
    end

    def udp_pair
      pair = Array.new(2) { UDPSocket.new.tap { |socket| socket.bind("127.0.0.1", 0) } }
      pair.zip(pair.rotate) { |socket, peer| socket.connect("127.0.0.1", peer.local_address.ip_port) }
      own(*pair)
    end

    # @return [Array(IO, IO)] the terminal's slave, which echoes nothing, and its master
    def terminal
      master, slave = PTY.open
      slave.raw!
      own(slave, master)
    end

    # @return [String] the path of a new file of the kind
    def path(kind = :file)
      name = File.join(@folder ||= Dir.mktmpdir("fuzz"), (@paths += 1).to_s)
      kind == :fifo ? File.mkfifo(name) : File.write(name, "")
      name
    end

    def fifo
      name = path(:fifo)
      reader = File.open(name, File::RDONLY | File::NONBLOCK)
      own(reader, File.open(name, File::WRONLY))
    end

    # A child that ends when the IO is closed at its other end.
    def child(input) = Process.spawn("cat", in: input, out: File::NULL).tap { input.close }

    # Another task, or a thread, holds the lock until {release}.
    # @param by [Symbol] :task or :thread
    def hold(lock, by)
      taken = Thread::Queue.new
      given_back = @held[lock] = Thread::Queue.new
      work = -> { with_lock(lock) { taken << true; given_back.pop } }
      by == :task ? start(&work) : thread(&work)
      taken.pop
    end

    def release(lock) = @held.delete(lock)&.push(true)

    # Waits until the IO is readable, but not for the IO itself: a watcher of the scheduler tells, or another thread.
    # @return [Symbol, nil] nil: the time is up
    def on_ready(io, limit = nil)
      told = Thread::Queue.new
      scheduler = Fiber.current_scheduler
      teller = scheduler ? scheduler.on_ready(io, timeout: limit) { |events| told << events } : Thread.new { told << io.wait_readable(limit) }
      told.pop && :ready
    ensure
      teller.is_a?(Thread) ? teller.kill.join : teller&.cancel
    end

    # A thread that has no part in the program's outcome.
    def thread(&work) = Thread.new(&work).tap { |thread| @helpers << thread }

    private

    def with_lock(lock)
      return lock.synchronize { yield } unless lock.is_a?(File)

      lock.flock(File::LOCK_EX)
      yield
      lock.flock(File::LOCK_UN)
    end

    def release_all = @held.each_key.to_a.each { |lock| release(lock) }

    def props_begin
      @helpers = []
      @ios = []
      @paths = 0
      @held = {}.compare_by_identity
    end

    # @return [Integer] how many IO objects were still open
    def close_props
      @helpers.each { |thread| thread.kill.join rescue nil } # rubocop:disable Style/RescueModifier -- its file may be closed
      open = @ios.uniq(&:object_id).reject(&:closed?)
      open.each { |io| io.close rescue nil } # rubocop:disable Style/RescueModifier -- EPIPE of a buffered write
      FileUtils.rm_rf(@folder) if @folder
      open.size
    end
  end
end
