# frozen_string_literal: true

require "reactor"

# Lets tests use the internal constants that they name.
names = %i[Clock Deadlock FiberName HappyEyeballs Internal Patches Poller Schedulers Scope SocketArguments VM]
Reactor.public_constant(*names.select { |name| Reactor.const_defined?(name) })
