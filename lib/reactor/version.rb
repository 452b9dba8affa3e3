# frozen_string_literal: true

module Reactor
  # The version of the gem, the extension and the crate.
  VERSION = "0.1.0"
end
