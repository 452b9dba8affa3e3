# frozen_string_literal: true

require_relative "io_close"

module Reactor
  module Patches
    # Prepended to IO. IO#reopen gives a descriptor number another file, of which the kernel tells those that poll the number
    # nothing. So the schedulers of the Ractor are told. As in threads, a fiber that waits for an IO that is reopened with
    # another IO gets IOError ("stream closed in another thread"). A wait goes on with the new file if the IO is
    # reopened with a path. A wait in IO.select always does.
    #
    # @api private
    module IOReopen
      # @return [IO] self
      def reopen(file, *rest, **options)
        file = IO.try_convert(file) || file if rest.empty? && options.empty?
        return super if equal?(file)

        IOClose.notify_schedulers(self) { |scheduler| scheduler.prepare_reopen(self) }
        super.tap { Schedulers.each { |scheduler| scheduler.replaced(self, IO === file) } }
      end
    end
  end
end
