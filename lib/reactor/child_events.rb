# frozen_string_literal: true

module Reactor
  # Tells when a child process has ended or changed, without taking its status.
  #
  # @api private
  module ChildEvents
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

      # @return [IO, nil] a pidfd, readable once the child has ended; nil if this child cannot have one
      def exit_descriptor(pid, flags)
        descriptor = Internal.pidfd(pid) if pid.positive? && flags.nobits?(Process::WUNTRACED)
        IO.for_fd(descriptor, "r") if descriptor
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
