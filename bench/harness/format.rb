# frozen_string_literal: true

module Bench
  # Numbers as text.
  module Format
    module_function

    # Three digits that count; thousands apart.
    def figure(value)
      return "–" if value.nil?

      size = value.abs
      return count(value.round) if size >= 100
      return "0" if size.zero?

      digits = [3 - Math.log10(size).floor - 1, 4].min
      format("%.#{digits.clamp(0, 4)}f", value)
    end

    # 10000 as 10,000.
    def count(number) = number.to_s.gsub(/(\d)(?=(\d{3})+\z)/, '\1,')

    # Bytes at a round binary size, or a plain count.
    def size(number)
      return count(number) unless number >= 1024 && (number % 1024).zero?

      number >= (1 << 20) ? "#{number >> 20} MiB" : "#{number >> 10} KiB"
    end

    def percent(share) = share && format("%.1f %%", share * 100)
  end
end
