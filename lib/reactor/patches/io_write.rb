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
  end
end
