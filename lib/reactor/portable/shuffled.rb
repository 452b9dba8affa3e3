# frozen_string_literal: true

module Reactor
  class PortableScheduler
    # Picks the next ready fiber at random. {PortableScheduler#shuffle} prepends it to the singleton class of a scheduler, so
    # other schedulers pay nothing.
    module Shuffled
      # @return [Integer] a hash of all choices so far
      attr_reader :shuffled

      # @api private
      def self.prepended(singleton) = singleton.attached_object.instance_exec { @chosen_by_chance = ObjectSpace::WeakMap.new }

      private

      def enqueue(entry)
        @chosen_by_chance[entry] = true unless entry.queued
        super
      end

      # An entry that was put first without being queued goes first here too, because its turn has already come.
      def run_next
        return super if @ready.empty?
        return poll if @resumes_since_poll.positive?

        standing = @ready.each_index.reject { |index| @ready[index].done }
        choose(standing) if standing.size > 1 && @chosen_by_chance.key?(@ready[standing.first])
        super
      end

      # Exchanges two entries in one step, because another thread or a trap handler may queue meanwhile.
      def choose(standing)
        index = standing[@chance.rand(standing.size)]
        @shuffled = ((@shuffled * 31) + (standing.size * 1009) + index) % (1 << 61)
        @ready[standing.first], @ready[index] = @ready[index], @ready[standing.first]
      end
    end
    private_constant :Shuffled

    # From now on, picks the next ready fiber at random.
    #
    # @param seed [Integer]
    # @api private
    def shuffle(seed)
      @chance = Random.new(seed)
      @shuffled = 0
      singleton_class.prepend(Shuffled)
    end

    # @return [Integer, nil] a hash of all choices so far; nil if the order is not shuffled
    # @api private
    def shuffled = nil
  end
end
