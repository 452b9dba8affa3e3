# frozen_string_literal: true

module Reactor
  # Tells when a child process has ended or changed, without taking its status.
  #
  # @api private
  module ChildEvents
    # The request number of linux/pidfd.h for the first version of struct pidfd_info, which has 64 bytes, and the bit for a status.
    PIDFD_GET_INFO = 0xc040_ff0b
    PIDFD_INFO_EXIT = 8
    private_constant :PIDFD_GET_INFO, :PIDFD_INFO_EXIT

    class << self
      # @return [Integer] the argument for waitpid(2)
      # @raise [TypeError] as Process.wait
      def integer(object)
        Integer.try_convert(object) or raise TypeError, "no implicit conversion of #{object.class} into Integer"
      end

      # @param pid [Integer] as for waitpid(2)
      # @param flags [Integer] as for waitpid(2)
      # @return [Process::Status, nil] takes the status of a child that has changed; nil if none has
      def status(pid, flags) = Process::Status.wait(pid, flags | Process::WNOHANG)

      # To be called before anything else: no trap handler runs before it has opened the descriptor.
      #
      # @return [IO, nil] a pidfd, readable once the child has ended; nil if this child cannot have one
      def exit_descriptor(pid, flags)
        descriptor = Internal.pidfd(pid) if Integer === pid && pid.positive? && Integer === flags && flags.nobits?(Process::WUNTRACED)
        IO.for_fd(descriptor, "r") if descriptor
      end

      # From Linux 6.15 on, a pidfd tells the status even if the child is gone already.
      #
      # @param descriptor [IO, nil] a pidfd
      # @return [Integer, nil] the status of a child that a trap handler has taken; nil if there is none, as where SIGCHLD is ignored
      def taken(descriptor)
        return if descriptor.nil? || File.read("/proc/self/status")[/^SigIgn:\s*(\h+)/, 1].to_s.hex[Signal.list["CHLD"] - 1] == 1

        info = [PIDFD_INFO_EXIT].pack("Qx56")
        descriptor.ioctl(PIDFD_GET_INFO, info)
        info.unpack1("@60l") if info.unpack1("Q").anybits?(PIDFD_INFO_EXIT)
      rescue SystemCallError, NotImplementedError
        nil
      end

      # Waits on a thread until a child may have changed. The thread reaps no child, so an interrupted wait loses no status.
      #
      # @return [void]
      def await(pid, flags)
        errors = Thread::Queue.new # not Thread#join: in a trap handler, it would end the sleep that the handler has interrupted
        thread = Thread.new do
          Internal.await_child(pid, flags)
        rescue SystemCallError => error
          errors << error
        ensure
          errors.close
        end
        error = errors.pop
        raise error if error
      ensure
        thread&.kill
      end
    end
  end
end
