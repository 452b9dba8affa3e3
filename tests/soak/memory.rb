# frozen_string_literal: true

# Whether a process grows. Three things are sampled after a collection each time: objects that Ruby keeps, bytes that
# somebody has from malloc and not given back, and resident memory. The first two show a leak, however small the rest is;
# the third also holds what malloc keeps for later, which creeps for minutes in a process with many short threads.
class Memory
  # The first fifth is warm-up; of the rest, the mean of the last third may exceed that of another (0: the first, 1: the
  # middle one) by this factor and so much.
  LIMITS = { objects: [0, 1.05, 2_000], malloc: [0, 1.1, 2 << 10], rss: [1, 1.1, 8 << 10] }.freeze
  UNITS = { objects: "objects", malloc: "kB of malloc's in use", rss: "kB resident" }.freeze
  FEWEST = 50

  def initialize
    @samples = LIMITS.transform_values { [] }
  end

  def sample
    GC.start
    { objects: GC.stat(:heap_live_slots), malloc: Malloc.used, rss: resident }.each { |kind, value| @samples[kind] << value if value }
  end

  # @yieldparam what [String] grew
  # @return [Array<String>] lines for a reader
  def judge
    @samples.map do |kind, values|
      next "#{UNITS[kind]}: #{values.size} samples, too few to judge" if values.size < FEWEST

      third = values.size * 4 / 5 / 3
      thirds = values.last(3 * third).each_slice(third).map { |part| part.sum / part.size }
      base, factor, slack = LIMITS[kind]
      yield "#{UNITS[kind]} grew from #{thirds[base]} to #{thirds[2]}" if thirds[2] > thirds[base] * factor + slack
      "#{UNITS[kind]}, thirds after warm-up: #{thirds.join(", ")} (largest #{values.max})"
    end
  end

  private

  def resident
    File.read("/proc/self/status")[/VmRSS:\s+(\d+)/, 1].to_i if File.readable?("/proc/self/status")
  end

  # glibc's own account of its arenas; nil where there is none.
  module Malloc
    begin
      require "fiddle"
      HANDLE = Fiddle::Handle::DEFAULT
      POINTER = Fiddle::TYPE_VOIDP
      STREAM = Fiddle::Function.new(HANDLE["open_memstream"], [POINTER, POINTER], POINTER)
      INFO = Fiddle::Function.new(HANDLE["malloc_info"], [Fiddle::TYPE_INT, POINTER], Fiddle::TYPE_INT)
      CLOSE = Fiddle::Function.new(HANDLE["fclose"], [POINTER], Fiddle::TYPE_INT)
      FREE = Fiddle::Function.new(HANDLE["free"], [POINTER], Fiddle::TYPE_VOID)
      KNOWN = true
    rescue LoadError # of fiddle, or of one of the names
      KNOWN = false
    end
    private_constant(*constants(false))

    # @return [Integer, nil] kB
    def self.used
      return unless KNOWN

      total = account[%r{.*</heap>(.*)}m, 1]
      size = ->(element) { Integer(total[/<#{element}[^>]* size="(\d+)"/, 1]) }
      (size.('system type="current"') - size.('total type="fast"') - size.('total type="rest"') + size.('total type="mmap"')) >> 10
    end

    def self.account
      text = Fiddle::Pointer.malloc(2 * Fiddle::SIZEOF_VOIDP, Fiddle::RUBY_FREE)
      stream = STREAM.call(text, text + Fiddle::SIZEOF_VOIDP)
      INFO.call(0, stream)
      CLOSE.call(stream)
      text.ptr.to_s.tap { FREE.call(text.ptr) }
    end
    private_class_method :account
  end
  private_constant :Malloc
end
