# frozen_string_literal: true

module Reactor
  module Top
    # The process cannot be observed; the message says why.
    class Failure < StandardError
    end

    # The answer of an observed process.
    class Snapshot
      # A scheduler of that process. `health` covers the time since the scheduler was made, `window` the time since the previous
      # snapshot (in the first snapshot, the same as `health`).
      Row = Struct.new(:id, :name, :backend, :health, :window, :fibers, :stalls)

      class << self
        # @param pid [Integer]
        # @param seconds [Numeric] to wait for each part of the answer, because the process may be stopped
        # @param before [Snapshot, nil]
        # @return [Snapshot, nil] nil if the process has not answered in time
        # @raise [Failure] the process does not exist or is not observable
        def at(pid, seconds, before = nil)
          text = read(pid, seconds) or return
          document = JSON.parse(text, symbolize_names: true)
          raise Failure, "process #{pid}: #{document[:error]}" if document[:error]

          new(document, before)
        rescue JSON::ParserError, KeyError
          raise Failure, "process #{pid} answers in an unknown format: does it run another version of reactor than #{VERSION}?"
        end

        private

        def read(pid, seconds)
          socket = Socket.new(:UNIX, :STREAM)
          address = Socket.sockaddr_un(SocketPlace.path(pid))
          # A full accept queue takes no connection.
          return if socket.connect_nonblock(address, exception: false) == :wait_writable

          socket.timeout = seconds
          socket.read.force_encoding(Encoding::UTF_8).tap { |text| raise EOFError if text.empty? }
        rescue IO::TimeoutError
          nil
        rescue SystemCallError, EOFError
          raise Failure, absence(pid)
        rescue SocketPlace::Untrusted => error
          raise Failure, error.message
        ensure
          socket&.close
        end

        def absence(pid)
          Process.kill(0, pid)
          "process #{pid} cannot be observed: it must call Reactor.observe"
        rescue Errno::ESRCH
          "there is no process #{pid}"
        rescue Errno::EPERM
          "process #{pid} belongs to another user"
        end
      end

      # @return [Hash{Symbol => Object}] the answer
      attr_reader :document
      # @return [Array<Row>]
      attr_reader :rows

      # @param document [Hash{Symbol => Object}]
      # @param before [Snapshot, nil]
      def initialize(document, before = nil)
        @document = document
        @rows = document.fetch(:schedulers).map do |row|
          health = Health.new(row.fetch(:stats), *%i[turns lateness queue].map { |name| histogram(row.fetch(name)) })
          last = before&.row(row[:id])
          window = last ? health - last.health : health
          Row.new(row[:id], row[:class], row[:backend], health, window, row.fetch(:fibers), row.fetch(:stalls))
        end
      end

      # @return [Row, nil] of the scheduler with this id
      def row(id) = @rows.find { |row| row.id == id }

      # @return [Hash{Symbol => Object}] the answer with percentiles in place of buckets, in seconds since the schedulers were
      #   made
      def to_h
        rows = @rows.map do |row|
          { id: row.id, class: row.name, backend: row.backend, **row.health.to_h, fibers: row.fibers, stalls: row.stalls }
        end
        @document.merge(schedulers: rows)
      end

      private

      def histogram(part) = Histogram.new(part.fetch(:counts), part.fetch(:sum), part[:max] || 0.0)
    end
  end
end
