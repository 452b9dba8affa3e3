# frozen_string_literal: true

module Reactor
  # How a scheduler does IO.select.
  module IOSelect
    # The hook for IO.select and Kernel#select.
    #
    # IO.select itself, called without waiting, determines which IOs are ready, because it knows Ruby's read buffers and tied
    # writers. Between two such calls the fiber parks on all the descriptors at once.
    #
    # @param readables [Array<IO, #to_io>, nil]
    # @param writables [Array<IO, #to_io>, nil]
    # @param exceptables [Array<IO, #to_io>, nil]
    # @param timeout [Numeric, nil] seconds; nil: no limit; 0: does not wait
    # @return [Array(Array, Array, Array), nil] the same objects that were given; nil when the timeout elapses
    # @raise [IOError, TypeError, ArgumentError, RangeError] as IO.select
    # @raise [RuntimeError] the scheduler is closed
    def io_select(readables, writables = nil, exceptables = nil, timeout = nil)
      raise "this scheduler is closed" if closed?

      timeout = nil if Float === timeout && timeout.infinite? == 1 && RUBY_VERSION >= "4.0"
      seconds = Checks.seconds(nil, timeout)
      deadline = seconds && now + seconds
      ready = select_now(readables, writables, exceptables)
      return ready if ready

      given = [readables, writables, exceptables]
      lists = given.map { |list| ios_of(list) }
      masks = masks_of(*lists)
      while true
        left = Clock.left(deadline, now)
        return if left&.zero?

        hung_up = wait_any(masks.keys, masks.values, left) or return
        hung_up.each { |io| masks.delete(io) }
        ready = select_now(*lists)
        return ready.zip(lists, given).map { |found, list, objects| objects_of(found, list, objects) } if ready
      end
    end

    private

    # @return [Array<IO>, nil] the IO of each object. An object is not asked more often than Ruby asks it: twice.
    def ios_of(list) = list.nil? || list.all?(IO) ? list : list.map { |object| IO.try_convert(object) }

    # @return [Array] the objects that these IOs are of
    def objects_of(found, list, objects)
      return found if list.equal?(objects)

      found = found.to_h { |io| [io, true] }.compare_by_identity
      list.zip(objects).filter_map { |io, object| object if found[io] }
    end

    # IO.select releases the GVL, so another thread may close one of the IOs meanwhile.
    def select_now(*lists)
      Fiber.blocking { VM.select_now(*lists) }
    rescue Errno::EBADF
      raise unless lists.compact.flatten.any? { |object| IO.try_convert(object).closed? }

      raise IOError, "stream closed in another thread"
    end

    # Maps each IO to all the events wanted for it.
    def masks_of(readables, writables, exceptables)
      masks = Hash.new(0).compare_by_identity
      { IO::READABLE => readables, IO::WRITABLE => writables, IO::PRIORITY => exceptables }.each do |event, list|
        list&.each { |io| masks[io] |= event }
      end
      masks
    end
  end
end
