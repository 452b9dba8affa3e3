# frozen_string_literal: true

module Reactor
  module Testing
    # One direction of a {Connection}: takes bytes from the network's end at the sender, and delivers them to the network's end at
    # the receiver when they are due. It has no fiber of its own: the scheduler starts one for each event.
    #
    # @api private
    class Pipe
      # The most bytes in transit. Beyond that, the sender's socket fills up.
      WINDOW = 1 << 18
      # The first byte of TLS.
      HANDSHAKE = 22
      private_constant :WINDOW, :HANDSHAKE

      # @param side [Integer] the sender's
      # @param source [BasicSocket]
      # @param target [BasicSocket]
      def initialize(connection, side, source, target)
        @connection = connection
        @network = connection.network
        @side = side
        @source = source
        @target = target
        @queue = []
        @bytes = @held = @last_due = 0
        @read = ->(_, _) { read }
        @deliver = ->(_, _) { deliver }
      end

      # Whether the receiver has got the end of the stream or a reset.
      def ended? = @ended

      def listen = @network.watch(@source, &@read)

      # Sends what was held back while the hosts were partitioned.
      def resume
        held, @held = @held, 0
        held.times { send_later }
      end

      # Sends a reset instead of the bytes in transit.
      def reset
        @reset = true
        @queue.grep(String).each { |bytes| lose(bytes) }
        @queue.clear
        push(:reset)
      end

      private

      def read
        return if @reset

        bytes = @source.recv_nonblock(@network.chunk(*@connection.hosts), exception: false)
        return listen if bytes == :wait_readable
        return push(:end) if bytes.nil? || bytes.empty?

        @tls ||= bytes.getbyte(0) == HANDSHAKE
        return lose(bytes) || @connection.reset_by(@side) if @network.reset?(*@connection.hosts)

        @bytes += bytes.bytesize
        push(bytes)
        @full = @bytes >= WINDOW
        listen unless @full
      rescue Errno::ECONNRESET
        reset # the sender has closed its socket before reading everything
      rescue IOError
        nil
      end

      def push(message)
        @queue << message
        send_later(message)
      end

      # Keeps messages in order: those after a resent message wait for it.
      def send_later(message = nil)
        now = @network.now
        delay = @connection.delay(@side) { |seconds| tell("lost, sent again after #{seconds} s:", message) }
        @last_due = [@last_due, now + (delay * 1e9).round].max
        @network.after((@last_due - now).fdiv(1_000_000_000), &@deliver)
      end

      def deliver
        return @held += 1 if @blocked || @connection.cut?

        message = @queue.shift or return
        message.is_a?(Symbol) ? finish(message) : write(message)
      end

      def finish(message)
        @ended = true
        tell(nil, message)
        return @connection.reset_at(1 - @side) if message == :reset

        @target.shutdown(Socket::SHUT_WR)
        @connection.close_if_ended
      rescue IOError, SystemCallError
        @connection.close_if_ended
      end

      def write(bytes)
        return lose(bytes) if @connection.crashed?(1 - @side)

        written = @target.sendmsg_nonblock(bytes, exception: false)
        written = 0 if written == :wait_writable
        tell(nil, bytes.byteslice(0, written)) if written.positive?
        @bytes -= written
        wait_for_space(bytes.byteslice(written..)) if written < bytes.bytesize
        listen if @full && !(@full = @bytes >= WINDOW)
      rescue Errno::EPIPE, Errno::ECONNRESET
        lose(bytes)
        @connection.reset_by(1 - @side) # the receiver has closed its socket
      rescue IOError
        lose(bytes) # the receiver has gone
      end

      def lose(bytes) = tell("never arrives:", bytes)

      # Adds a line to the timeline. What TLS sends depends on its own random numbers.
      def tell(what, message)
        what = [what, (message.is_a?(String) ? message.bytesize : message), ("bytes of TLS" if @tls && message.is_a?(String))]
        @network.trace.add(*@connection.names(@side), what.compact.join(" "), (message if message.is_a?(String) && !@tls))
      end

      def wait_for_space(rest)
        @queue.unshift(rest)
        @blocked = true
        @network.watch(@target, IO::WRITABLE) do
          @blocked = false
          deliver
          deliver_held
        end
      end

      # Delivers what became due while the receiver's socket was full.
      def deliver_held
        until @held.zero? || @blocked || @connection.cut?
          @held -= 1
          deliver
        end
      end
    end
    private_constant :Pipe
  end
end
