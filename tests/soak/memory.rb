# frozen_string_literal: true

# Whether a process grows. After a collection three things are sampled: live objects, bytes allocated by malloc, and
# resident memory. The first two show even a small leak. Resident memory includes free memory of malloc, which grows for
# minutes in a process with many short threads.
class Memory
  # [third, factor, slack]: the first fifth is warm-up, the rest is divided into thirds. The mean of the last third must not
  # exceed that of the given third (0: the first, 1: the middle one) times `factor` plus `slack`.
  LIMITS = { objects: [0, 1.05, 2_000], malloc: [0, 1.1, 2 << 10], rss: [1, 1.1, 8 << 10] }.freeze
  UNITS = { objects: "objects", malloc: "kB allocated by malloc", rss: "kB resident" }.freeze
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

  # The statistics of glibc's arenas; nil with another C library.
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
    rescue LoadError # fiddle, or one of the functions, is missing
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
