# frozen_string_literal: true

require_relative "../socket_arguments"
require_relative "../schedulers"
require_relative "virtual_time"

module Reactor
  module Patches
    # Shared by the patches of Ruby's name-resolving methods. Each of them does what Ruby does if the current fiber has no
    # scheduler of this library, or if it is given an address, which needs no resolver.
    #
    # * A thread of its own calls the method, so the result and the errors are Ruby's.
    # * TCPSocket.new and Socket.tcp take no thread for each call. Here {HappyEyeballs} connects them in the calling fiber.
    #
    # If a subclass of the scheduler has an `address_resolve` of its own, Ruby asks it as ever. TCPSocket.new then does without
    # Happy Eyeballs, which would not ask it.
    #
    # @api private
    module NameResolution
      class << self
        # @return [Boolean] whether there is certainly nothing to resolve; cheap
        def nothing_to_resolve?(host, service)
          Fiber.current_scheduler.nil? || (SocketArguments.plain_address?(host) && SocketArguments.port?(service))
        end

        # Runs the block, which is Ruby's method and waits for nothing but the resolver.
        #
        # @param host [Object] as the program gave it
        # @param service [Object] as the program gave it
        def resolve(host = nil, service = nil, &)
          return yield unless Schedulers.current&.resolves?

          host.nil? || nothing_to_resolve?(host, service) ? Fiber.blocking(&) : on_thread(&)
        end

        # Has a thread run what may wait for a nameserver. Virtual time stands still meanwhile.
        #
        # @param waits [Boolean] whether it may
        def on_thread(waits = true, &)
          scheduler = Schedulers.current if waits
          return yield unless scheduler&.resolves?
          return Fiber.blocking { yield } unless scheduler.may_wait_for_threads?

          held = VirtualTime.virtual?
          begin
            scheduler.virtual_hold(true) if held
            scheduler.run_on_own_thread(-> { Fiber.blocking(&) }, &)
          ensure
            scheduler.virtual_hold(false) if held
          end
        end

        # @param flags [Integer] of getnameinfo(3)
        # @return [Boolean] whether they ask for the name of a host
        def name?(flags) = Integer === flags && flags.nobits?(Socket::NI_NUMERICHOST)

        # @return [Boolean] whether code of another library has replaced one of these methods of Ruby's, as resolv-replace does
        def replaced?(owner, names)
          names.any? do |name|
            file, = owner.instance_method(name).source_location if owner.method_defined?(name) || owner.private_method_defined?(name)
            file && !file.start_with?("<internal:") && File.basename(file) != "socket.rb"
          end
        end
      end
    end
  end
end
