# frozen_string_literal: true

module Reactor
  # When IO#timeout is over, `io_wait` returns false. From Ruby 3.4 on, the method that called it raises the right exception. On
  # Ruby 3.3 a method that transfers raises what errno says, and Ruby code cannot set errno. So `io_wait` itself raises the
  # exception that the method raises without a scheduler. Methods that only wait get false.
  #
  # @api private
  module IOTimeoutOnRuby33
    # These raise IO::TimeoutError.
    TRANSFERS = %w[read readpartial gets getc getbyte readline readlines readchar readbyte each_line each each_byte each_char eof eof?
                   write puts print << printf putc flush sysread syswrite].freeze
    # These raise Errno::EAGAIN, which names the system call.
    SYSTEM_CALLS = { "recv" => "recvfrom(2)", "recvfrom" => "recvfrom(2)", "__recvmsg" => "recvmsg(2)", "send" => "send(2)",
                     "__sendmsg" => "sendmsg(2)", "accept" => "accept(2)", "sysaccept" => "accept(2)" }.freeze
    private_constant :TRANSFERS, :SYSTEM_CALLS

    class << self
      # @return [Exception, nil] what the method that has called io_wait is to raise; called by io_wait itself
      def error
        return if RUBY_VERSION >= "3.4"

        caller, its_caller = caller_locations(2, 2)
        return unless its_caller && written_in_c?(caller, its_caller)

        if TRANSFERS.include?(caller.base_label)
          IO::TimeoutError.new("Blocking operation timed out!")
        elsif (call = SYSTEM_CALLS[caller.base_label])
          Errno::EAGAIN.new(call)
        end
      end

      private

      # A method written in C shows the line of its caller as its own.
      def written_in_c?(caller, its_caller) = caller.path == its_caller.path && caller.lineno == its_caller.lineno
    end
  end
end
