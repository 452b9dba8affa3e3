# frozen_string_literal: true

module Reactor
  module Patches
    # Of IO on Windows. Because Windows has no writev(2), Ruby collects the strings of one call (in `puts`, a line and
    # its line end) in its buffer and writes the buffer without calling the hook, so a full pipe would block the thread.
    #
    # @api private
    module IOWrite
      def self.needed? = VM::WINDOWS

      # @return [Integer] bytes
      # @raise as without a scheduler
      def write(*objects)
        return reactor_io_write(*objects) if objects.size < 2 || Schedulers.current.nil?

        texts = objects.map { |object| "#{object}" } # rubocop:disable Style/RedundantInterpolation -- as Ruby converts it
        begin
          whole = texts.join
        rescue Encoding::CompatibilityError
          return texts.sum { |text| reactor_io_write(text) }
        end
        reactor_io_write(whole)
      end
    end

    # Of IO. With a scheduler, Ruby passes a line and its line end to the hook one after the other, without it in one call of writev(2).
    # On a TCP connection the second one then waits until the peer has acknowledged the first, which takes 40 ms; in a log that several
    # processes share, another line may come between. So both are one string.
    #
    # @api private
    module IOPuts
      # @return [nil]
      # @raise as without a scheduler
      def puts(*objects)
        return reactor_io_puts(*objects) if objects.empty? || Schedulers.current.nil? || !IO.equal?(method(:write).owner)

        objects.each do |object|
          line = object.respond_to?(:to_ary) ? nil : "#{object}" # rubocop:disable Style/RedundantInterpolation -- as Ruby converts it
          next reactor_io_puts(object) if line.nil? || !line.encoding.ascii_compatible? || line.end_with?("\n")

          write("#{line}\n")
        end
        nil
      end
    end
  end
end
